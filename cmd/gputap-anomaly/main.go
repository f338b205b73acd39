// Command gputap-anomaly finds unusual allocations and publishes them as alerts.
package main

import (
	"context"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/fold"
)

func main() { app.Main("gputap-anomaly", run) }

func run(ctx context.Context, p *app.Process) error {
	return fold.Anomaly.Run(ctx, p, new(reporter).report)
}
