// Command gputap-launch answers what runs: launches by process and CUDA kernel.
package main

import (
	"context"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/fold"
)

func main() { app.Main("gputap-launch", run) }

func run(ctx context.Context, p *app.Process) error { return fold.Launch.Run(ctx, p, report) }
