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

// exitError is an error with an exit status of its own.
type exitError struct {
	code int
	error
}

func (e exitError) Unwrap() error { return e.error }

// Usage says that the command line or the configuration is wrong.
func Usage(err error) error { return Exit(exitUsage, err) }

// Findings says that the command worked and found what it looks for.
func Findings(err error) error { return Exit(exitFindings, err) }

// Incomplete says that the answer rests on incomplete data.
func Incomplete(err error) error { return Exit(exitIncomplete, err) }

// Unreachable says that NATS is not there.
func Unreachable(err error) error { return Exit(exitUnreachable, err) }

// Privilege says that this machine or this user cannot run it.
func Privilege(err error) error { return Exit(exitPrivilege, err) }

// Exit gives an error an exit status; one that it has already stays.
func Exit(code int, err error) error {
	var has exitError
	if errors.As(err, &has) {
		return err
	}
	return exitError{code, err}
}

// ExitCode is the exit status of an error.
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
