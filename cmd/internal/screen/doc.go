// Package screen is the full screen of gputap top: the processes of a fleet, the groups of allocations of one process,
// and the allocations of one group.
//
// Model is the state of the screen; bubbletea calls it on one goroutine. A question runs on another goroutine, one at a
// time: keys work while it waits. If a question fails, the screen keeps the last answer, with its age, and shows the
// error.
//
// Each colour repeats a word. NO_COLOR switches colours off.
package screen
