// Package source opens the input of the offline commands: a recording of gputap, or an export of Nsight Systems, which
// it converts into a temporary recording.
//
// A Source yields messages in the order of the file. It skips damaged blocks and keeps their offsets: the answers say
// what is missing.
package source
