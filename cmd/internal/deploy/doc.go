// Package deploy is tests: they run the files of the folder deploy as they are, in real servers, and hold
// each role to what it may do and may not.
package deploy
