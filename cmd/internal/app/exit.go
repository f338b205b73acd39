package app

import "errors"

// Exit statuses of every command; 1 is any other error, 130 and 143 are signals.
const (
	exitUsage       = 2
	exitFindings    = 3
	exitIncomplete  = 4
	exitUnreachable = 5
	exitPrivilege   = 6
)

// exitError is an error with an exit status.
type exitError struct {
	code int
	error
}

func (e exitError) Unwrap() error { return e.error }

// Usage marks an error in the command line or the configuration: exit status 2.
func Usage(err error) error { return Exit(exitUsage, err) }

// Findings marks checks that failed in a command that worked: exit status 3.
func Findings(err error) error { return Exit(exitFindings, err) }

// Incomplete marks a result that lacks events: exit status 4.
func Incomplete(err error) error { return Exit(exitIncomplete, err) }

// Unreachable marks an error of the connection to NATS: exit status 5.
func Unreachable(err error) error { return Exit(exitUnreachable, err) }

// Privilege marks missing privileges, or a Linux that cannot run the probes: exit status 6.
func Privilege(err error) error { return Exit(exitPrivilege, err) }

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
