package main

import (
	"encoding/csv"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/config"
)

// runFlags are the options of gputap run.
type runFlags struct {
	config   string // file
	print    bool
	bus      config.Embedded
	producer config.Producer
	interval time.Duration
	metrics  string
	forTime  time.Duration
	output   string
	store    string
	rows     int
}

func (f *runFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.config, "config", "", "YAML file: its sections embedded and producer")
	flags.BoolVar(&f.print, "print-config", false, "print what file, GPUTAP_… variables and flags give for these sections, and end")
	flags.StringVar(&f.bus.Listen, "nats-listen", "",
		"address where other programs may read the bus, as 127.0.0.1:4222; the log says where their credential is")
	flags.StringVar(&f.bus.TLSCert, "nats-listen-tls-cert", "", "certificate of that address; needed beyond this machine")
	flags.StringVar(&f.bus.TLSKey, "nats-listen-tls-key", "", "key of that certificate")
	flags.StringSliceVar(&f.producer.Features, "features", f.producer.Features, "what to watch: memory, launch, copy, sync")
	flags.StringArrayVar(&f.producer.Libraries, "library", nil, "driver library to watch besides those found (repeatable)")
	flags.BoolVar(&f.producer.UnsafeReturns, "unsafe-return-probes", false,
		"probe returns even where that ends programs under seccomp (Linux 6.11 to 6.13)")
	filterFlags(flags, &f.producer.Filter)
	flags.DurationVar(&f.interval, "display-interval", 5*time.Second, "time between reports")
	flags.StringVar(&f.metrics, "metrics-addr", defaultMetricsAddr, "address of /metrics; empty for none")
	flags.DurationVar(&f.forTime, "for", 0, "end after this time (default: until interrupted)")
	flags.StringVarP(&f.output, "output", "o", "table", "table or json (one object per interval)")
	flags.StringVar(&f.store, "store", "", "keep the stream in this directory (default: a temporary one)")
	flags.IntVar(&f.rows, "rows", 20, "allocations shown, largest first")
}

// load reads the sections that gputap run shares with files and variables; flags that were given are over both.
func (f *runFlags) load(flags *pflag.FlagSet) error {
	var args []string
	flags.Visit(func(given *pflag.Flag) {
		own := []string{"display-interval", "metrics-addr", "for", "output", "store", "rows"}
		if slices.Contains(own, given.Name) {
			return
		}
		value := given.Value.String()
		if list, ok := given.Value.(pflag.SliceValue); ok {
			value = quoted(list.GetSlice())
		}
		args = append(args, "--"+given.Name+"="+value)
	})
	cfg, err := config.Load("gputap run", args, config.DefaultRunCommand())
	if err != nil && !errors.Is(err, config.ErrHelp) {
		return app.Usage(err)
	}
	f.bus, f.producer = cfg.Embedded, cfg.Producer
	return err
}

// quoted is a list as a flag takes it: an entry may hold a comma.
func quoted(list []string) string {
	var out strings.Builder
	w := csv.NewWriter(&out)
	_ = w.Write(list) // to memory
	w.Flush()
	return strings.TrimSuffix(out.String(), "\n")
}

// filterFlags choose the processes that are watched, as they do for gputap-producer.
func filterFlags(flags *pflag.FlagSet, f *config.Filter) {
	flags.StringSliceVar(&f.Comm, "filter.comm", nil, "watch only processes of these names; of several kinds of filter all must fit")
	flags.StringSliceVar(&f.PID, "filter.pid", nil, "watch only these running processes")
	flags.StringSliceVar(&f.UID, "filter.uid", nil, "watch only processes of these users: number or name")
	flags.StringSliceVar(&f.Container, "filter.container", nil, "watch only these containers: id, its first 12 digits, or a pod's UID")
	flags.StringSliceVar(&f.Cgroup, "filter.cgroup", nil, "watch only these control groups: path in the hierarchy, or a directory's name")
}
