// Command gputap-bandwidth answers how much data moves: copies by process and direction.
package main

import (
	"context"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/fold"
)

func main() { app.Main("gputap-bandwidth", run) }

func run(ctx context.Context, p *app.Process) error { return fold.Bandwidth.Run(ctx, p, report) }
