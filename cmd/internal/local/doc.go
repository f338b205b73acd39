// Package local is the Unix socket of gputap run, through which commands of the same host ask it.
//
// Place. The socket is run-PID.sock in /run/gputap for root, and in $XDG_RUNTIME_DIR/gputap for other users. A socket
// whose process is gone is removed by the next Listen in its directory.
//
// Access. Linux tells the user of each peer (SO_PEERCRED). Only root and the user of the process are let in; others get
// no byte. The mode of the socket is 0600.
//
// Bounds. At most 32 connections are open; more are closed at once. Close ends all connections and waits for them.
package local
