package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/demo"
	"github.com/gputap/gputap/cmd/internal/report"
	"github.com/gputap/gputap/config"
)

// demoFlags are the flags of gputap demo.
type demoFlags struct {
	scenario, fixtures string
	stormSeconds       int
	out                *output
}

func demoCommand(p *app.Process) *cobra.Command {
	f := demoFlags{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run known programs on a stub CUDA driver and check gputap's figures",
		Long: `Run known programs on a stub CUDA driver through real uprobes, and compare gputap's figures with the
stub's own. It needs root and no GPU. ` + "`make stub`" + ` builds the stub and the programs.

Scenarios:
` + scenarioList() + `
Exit status: 0 all figures are correct; 2 wrong flags; 3 a figure differs; 6 privileges are missing.`,
		Example: "  sudo gputap demo\n  sudo gputap demo --scenario leak3\n  sudo gputap demo -o json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), p) },
	}
	cmd.Flags().StringVar(&f.scenario, "scenario", "all", "scenario to run, or all")
	f.out = addOutput(cmd, "table")
	cmd.Flags().StringVar(&f.fixtures, "fixtures", "",
		"directory of workload and stub/libcuda.so.1 (default: the directory of this program)")
	cmd.Flags().IntVar(&f.stormSeconds, "storm-seconds", 10, "duration of the storm in seconds")
	completeWith(cmd, "scenario", scenarioNames()...)
	return cmd
}

func scenarioList() string {
	var b strings.Builder
	for _, s := range demo.Scenarios {
		fmt.Fprintf(&b, "  %-11s %s\n", s.Name, s.Summary)
	}
	return b.String()
}

func scenarioNames() []string {
	names := []string{"all"}
	for _, s := range demo.Scenarios {
		names = append(names, s.Name)
	}
	return names
}

func (f *demoFlags) run(ctx context.Context, p *app.Process) error {
	if !slices.Contains(scenarioNames(), f.scenario) {
		return app.Usage(fmt.Errorf("--scenario %q: use one of %s", f.scenario, strings.Join(scenarioNames(), ", ")))
	}
	if f.stormSeconds < 1 {
		return app.Usage(fmt.Errorf("--storm-seconds %d: use 1 or more", f.stormSeconds))
	}
	if os.Geteuid() != 0 {
		if c := checkCapabilities(); c.Status == statusFail {
			return app.Privilege(fmt.Errorf("attach uprobes: %s; run sudo gputap demo as root", c.Found))
		}
	}
	dir, err := fixturesDir(f.fixtures)
	if err != nil {
		return err
	}
	p.Logging(config.Log{Level: "warn", Format: "auto"})
	var results []demo.Result
	for _, s := range demo.Scenarios {
		if f.scenario != "all" && f.scenario != s.Name {
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r := s.Play(ctx, demo.Options{Dir: dir, StormSeconds: f.stormSeconds, Log: p.Log})
		results = append(results, r)
		if !f.out.json {
			writeResult(p.Stdout, &r)
		}
	}
	return f.conclude(p.Stdout, results)
}

func fixturesDir(flag string) (string, error) {
	dir := flag
	if dir == "" {
		self, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("find the directory of this program: %w", err)
		}
		dir = filepath.Dir(self)
	}
	for _, file := range []string{"workload", "stub/libcuda.so.1"} {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			return "", fmt.Errorf("find the stub driver: %w; run make stub, or set --fixtures to its directory", err)
		}
	}
	return filepath.Abs(dir)
}

func writeResult(out io.Writer, r *demo.Result) {
	verdict := "ok"
	if !r.OK {
		verdict = "DIFFERS"
	}
	fmt.Fprintf(out, "%-11s %-7s %5.1f s   lost %s\n", r.Name, verdict, r.Took.Seconds(), report.LostText(r.Lost))
	if r.Error != "" {
		fmt.Fprintf(out, "  error: %s\n", r.Error)
	}
	for _, c := range r.Checks {
		mark := " "
		if !c.OK() {
			mark = "✗"
		}
		fmt.Fprintf(out, "  %s %-58s expected %-14v observed %v\n", mark, c.What, c.Expected, c.Observed)
	}
}

func (f *demoFlags) conclude(to io.Writer, results []demo.Result) error {
	var differ []string
	for _, r := range results {
		if !r.OK {
			differ = append(differ, r.Name)
		}
	}
	err := f.out.write(to, map[string]any{"ok": len(differ) == 0, "scenarios": results}, func(w io.Writer) {
		writeLine(w, "\n%d passed, %d failed", len(results)-len(differ), len(differ))
	})
	if len(differ) > 0 {
		return app.Findings(errors.New("the figures of gputap and of the stub differ in " + strings.Join(differ, ", ")))
	}
	return err
}
