package app

import "errors"

// Exit statuses of every command: 2 to 6 as below, 1 for any other error, 128 + N for signal N that ended a command
// before it was done.

// exitError is an error with an exit status.
type exitError struct {
	code int
	error
}

func (e exitError) Unwrap() error { return e.error }

// Usage marks an error in the command line or the configuration: exit status 2.
func Usage(err error) error { return Exit(2, err) }

// Findings marks checks that failed in a command that worked: exit status 3.
func Findings(err error) error { return Exit(3, err) }

// Incomplete marks a result that lacks events: exit status 4.
func Incomplete(err error) error { return Exit(4, err) }

// Unreachable marks an error of the connection to NATS: exit status 5.
func Unreachable(err error) error { return Exit(5, err) }

// Privilege marks missing privileges, or a Linux that cannot run the probes: exit status 6.
func Privilege(err error) error { return Exit(6, err) }

// Exit gives an error an exit status, unless it already has one.
func Exit(code int, err error) error {
	var has exitError
	if errors.As(err, &has) {
		return err
	}
	return exitError{code, err}
}

// ExitCode returns the exit status of an error: 0 for nil, 1 for an error without one.
func ExitCode(err error) int {
	var has exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &has):
		return has.code
	}
	return 1
}
