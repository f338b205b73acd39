package analyze

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/plot"
	"github.com/gputap/gputap/cmd/internal/source"
	"github.com/gputap/gputap/schema"
)

// picture is the flags of gputap plot.
type picture struct {
	question
	file   string
	smi    string
	offset time.Duration
	size   plot.Size
}

// PlotCommand returns gputap plot.
func PlotCommand(p *app.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "plot", Short: "Draw the memory and the copies of processes in a recording as PNG or SVG",
		Long: "Draw the memory and the copies of processes in a recording as PNG or SVG.\n" + exitStatus,
		Example: `  gputap plot usage run.gputap -o usage.png
  gputap plot usage run.gputap -o torch.png --by torch --smi smi.csv
  gputap plot usage good.gputap bad.gputap -o both.png
  gputap plot watermark run.gputap -o peaks.png --comm python3
  gputap plot bandwidth run.gputap -o copies.svg`,
	}
	cmd.AddCommand(
		memoryPlotCommand(p, "usage", "GPU memory over time, stacked; of several recordings one line each", true),
		memoryPlotCommand(p, "watermark", "GPU memory of each process over time, with its highest point", false),
		bandwidthPlotCommand(p))
	return cmd
}

func memoryPlotCommand(p *app.Process, name, short string, stacked bool) *cobra.Command {
	c := &picture{question: question{p: p}, size: plot.DefaultSize}
	words := slices.Sorted(maps.Keys(areas))
	cmd := &cobra.Command{
		Use: name + " FILE… | --since TIME", Short: short,
		Long: short + `.

--smi draws what nvidia-smi reported as a dashed line, aligned by wall time. To make the log:
  ` + makeLog + "\n" + exitStatus,
		Example: "  gputap plot " + name + " run.gputap -o chart.png\n" +
			"  gputap plot " + name + " run.gputap -o chart.svg --pid 4242 --width 800\n" +
			"  gputap plot " + name + " good.gputap bad.gputap -o both.png",
		PreRunE: func(_ *cobra.Command, args []string) error {
			switch {
			case areas[c.by] == nil:
				return app.Usage(fmt.Errorf("--by %q: use %s", c.by, strings.Join(words, ", ")))
			case len(args) > 1 && (c.smi != "" || c.by != byProcess):
				return app.Usage(errors.New("--smi and --by: not with several recordings, which are one line each"))
			case len(args) > plot.Limit:
				return app.Usage(fmt.Errorf("%d recordings: use at most %d", len(args), plot.Limit))
			}
			return c.checkPicture(args)
		},
		RunE: func(cmd *cobra.Command, args []string) error { return c.drawMemory(cmd.Context(), args, stacked) },
	}
	c.pictureFlags(cmd)
	if c.by = byProcess; stacked {
		cmd.Flags().StringVar(&c.by, "by", byProcess, "split the memory into areas by "+strings.Join(words, ", "))
	}
	cmd.Flags().StringVar(&c.smi, "smi", "", "CSV file of nvidia-smi to draw on top")
	cmd.Flags().DurationVar(&c.offset, "smi-offset", 0, "time to add to the times of nvidia-smi")
	c.AddFlags(cmd)
	return cmd
}

func (c *picture) pictureFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&c.file, "output", "o", "", "file to write, .png or .svg (required)")
	flags.IntVar(&c.size.Width, "width", c.size.Width, "width in pixels")
	flags.IntVar(&c.size.Height, "height", c.size.Height, "height in pixels")
	_ = cmd.MarkFlagRequired("output") // the flag exists; shell completion offers it first
}

func (c *picture) checkPicture(args []string) error {
	if c.file == "" {
		return app.Usage(errors.New("no file to write: use -o FILE.png or -o FILE.svg"))
	}
	if _, err := plot.FormatOf(c.file); err != nil {
		return app.Usage(err)
	}
	if err := c.size.Validate(); err != nil {
		return app.Usage(fmt.Errorf("--width and --height: %w", err))
	}
	if err := source.NotInput(c.file, append(args[:len(args):len(args)], c.smi)...); err != nil {
		return err
	}
	return c.parse([]string{""})
}

// drawMemory reads the sources and writes the chart.
func (c *picture) drawMemory(ctx context.Context, args []string, stacked bool) error {
	var names, missing []string
	var runs []*memory
	for _, path := range sources(args) {
		s, err := c.Open(ctx, c.p, path, memoryKinds(c.by)...)
		if err != nil {
			return err
		}
		defer s.Close()
		m, err := readMemory(ctx, s, &c.Range, c.by == byTorch, c.p.Log)
		if err != nil {
			return err
		}
		defer m.Close()
		m.Missing = append(m.Missing, s.Unrecorded(schema.KindMemory)...)
		runs, names = append(runs, m), append(names, filepath.Base(s.Name))
	}
	chart, err := c.runsChart(names, runs)
	if len(runs) == 1 {
		chart, err = c.memoryChart(runs[0], stacked)
	}
	if err == nil {
		err = chart.WriteFile(c.file, c.size)
	}
	if err != nil {
		return err
	}
	for _, m := range runs { // the chart may have added to it
		missing = append(missing, m.Missing...)
	}
	return source.Incomplete(missing)
}

// sources returns the arguments of Open for each source. No argument is a range of a bus.
func sources(args []string) (list [][]string) {
	for i := range args {
		list = append(list, args[i:i+1])
	}
	if len(list) == 0 {
		return [][]string{nil}
	}
	return list
}
