// Package smi reads what nvidia-smi --format=csv writes, as series for a chart.
//
// Rows. Columns may come in any order, with or without header and units. Without a header, the first row needs a time
// or a memory in MiB: other files have names and numbers, too. Rows that cannot be read are counted, and the first one
// is reported; they never stop the rest. A second header, of a file that was appended to, is followed.
//
// Time. Timestamps are in the local time of the machine that wrote them, so the reader names the location. In the hour
// that a clock repeats in autumn, rows are taken to go forward. Rows without timestamps are an interval apart.
//
// Memory. Of equal rows in sequence, only the first and the last are kept: a log of an idle GPU costs nothing.
package smi
