package cluster

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Main runs a harness program until it is done or receives SIGINT or SIGTERM, and exits with status 1 if it fails. A
// second signal kills the program.
func Main(name string, run func(context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	if err := run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}
