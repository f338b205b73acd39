package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
)

// result is what one scenario found. Its keys are a contract.
type result struct {
	Name     string            `json:"name"`
	OK       bool              `json:"ok"`
	Expected map[string]any    `json:"expected"`
	Observed map[string]any    `json:"observed"`
	Lost     map[string]uint64 `json:"lost"`
	Error    string            `json:"error,omitempty"`
	rows     []check
	took     time.Duration
}

func demoCommand(p *app.Process) *cobra.Command {
	var scenarioName, output, fixtures string
	var seconds int
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run known programs on a stub CUDA driver and compare with its own totals",
		Long: `Run known programs against a stub CUDA driver through real uprobes, and compare what gputap saw with
what the stub counted of itself. No GPU is needed; root is. The stub and the programs are built by
` + "`make stub`" + `. Exit status 3: something differed.

Scenarios:
` + scenarioList(),
		Example: "  sudo gputap demo\n  sudo gputap demo --scenario leak3\n  sudo gputap demo -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo(cmd.Context(), p, scenarioName, output, fixtures, seconds)
		},
	}
	cmd.Flags().StringVar(&scenarioName, "scenario", "all", "which one, or all")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	cmd.Flags().StringVar(&fixtures, "fixtures", "", "directory of workload and stub/libcuda.so.1 (default: beside this program)")
	cmd.Flags().IntVar(&seconds, "storm-seconds", 10, "how long the storm lasts")
	_ = cmd.RegisterFlagCompletionFunc("scenario", cobra.FixedCompletions(scenarioNames(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func scenarioList() string {
	var b strings.Builder
	for _, s := range scenarios {
		fmt.Fprintf(&b, "  %-11s %s\n", s.name, s.summary)
	}
	return b.String()
}

func scenarioNames() []string {
	names := []string{"all"}
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	return names
}

func demo(ctx context.Context, p *app.Process, name, output, fixtures string, seconds int) error {
	if !slices.Contains(scenarioNames(), name) {
		return app.Usage(fmt.Errorf("--scenario %q: use one of %s", name, strings.Join(scenarioNames(), ", ")))
	}
	if output != "table" && output != "json" {
		return app.Usage(fmt.Errorf("--output %q: use table or json", output))
	}
	if os.Geteuid() != 0 {
		if f := checkCapabilities(); f.Status == statusFail {
			return app.Privilege(fmt.Errorf("uprobes need root (%s): run sudo bin/gputap demo", f.Found))
		}
	}
	dir, err := fixturesDir(fixtures)
	if err != nil {
		return err
	}
	var results []result
	for _, s := range scenarios {
		if name != "all" && name != s.name {
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		start := time.Now()
		r := play(ctx, s, dir, seconds, p.Log)
		r.took = time.Since(start)
		results = append(results, r)
		if output == "table" {
			writeResult(p.Stdout, &r)
		}
	}
	return conclude(p.Stdout, output, results)
}

func fixturesDir(asked string) (string, error) {
	dir := asked
	if dir == "" {
		self, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("find this program: %w", err)
		}
		dir = filepath.Dir(self)
	}
	for _, file := range []string{"workload", "stub/libcuda.so.1"} {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			return "", fmt.Errorf("the stub driver is not built (%w): run make stub, or name its place with --fixtures", err)
		}
	}
	return filepath.Abs(dir)
}

func writeResult(out io.Writer, r *result) {
	verdict := "ok"
	if !r.OK {
		verdict = "DIFFERS"
	}
	fmt.Fprintf(out, "%-11s %-7s %5.1f s   lost %s\n", r.Name, verdict, r.took.Seconds(), lostText(r.Lost))
	if r.Error != "" {
		fmt.Fprintf(out, "  error: %s\n", r.Error)
	}
	for _, c := range r.rows {
		mark := " "
		if !c.equal() {
			mark = "✗"
		}
		fmt.Fprintf(out, "  %s %-58s expected %-14v observed %v\n", mark, c.what, c.expected, c.observed)
	}
}

func conclude(out io.Writer, output string, results []result) error {
	var differ []string
	for _, r := range results {
		if !r.OK {
			differ = append(differ, r.Name)
		}
	}
	if output == "json" {
		err := json.NewEncoder(out).Encode(map[string]any{"ok": len(differ) == 0, "scenarios": results})
		if err != nil {
			return err
		}
	} else {
		fmt.Fprintf(out, "\n%d passed, %d failed\n", len(results)-len(differ), len(differ))
	}
	if len(differ) > 0 {
		return app.Findings(errors.New("gputap and the stub differ in " + strings.Join(differ, ", ")))
	}
	return nil
}
