// Command gputap-leak answers who holds GPU memory: live allocations by process.
package main

import (
	"context"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/fold"
)

func main() { app.Main("gputap-leak", run) }

func run(ctx context.Context, p *app.Process) error { return fold.Leak.Run(ctx, p, report) }
