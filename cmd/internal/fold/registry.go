package fold

import (
	"slices"

	"github.com/spf13/pflag"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/bandwidth"
	"github.com/gputap/gputap/consumer/launch"
	"github.com/gputap/gputap/consumer/rank"
	"github.com/gputap/gputap/schema"
)

// raise publishes an alert. It is nil where a fold is not run by its program.
type raise = func(alert.Alert)

// outputs are what a fold publishes. They are nil where a fold is not run by its program.
type outputs struct {
	raise
	summarize func(rank.Summary)
}

// The registry: one statement per fold. Everything that treats all folds alike reads All.
var (
	Leak = define("leak", config.DefaultLeakCommand, func(c config.LeakCommand, to outputs) *Memory {
		return newMemory(c.Leak, to.raise)
	})
	Launch = define("launch", config.DefaultLaunchCommand, func(c config.LaunchCommand, _ outputs) *launch.Histogram {
		return launch.New(launch.Config{Keep: c.Launch.Keep, MaxKernels: c.Launch.MaxKernels})
	})
	Bandwidth = define("bandwidth", config.DefaultBandwidthCommand,
		func(c config.BandwidthCommand, _ outputs) *bandwidth.Meter {
			return bandwidth.New(bandwidth.Config{Keep: c.Bandwidth.Keep})
		})
	Anomaly = define("anomaly", config.DefaultAnomalyCommand, func(c config.AnomalyCommand, to outputs) *Anomalies {
		return newAnomalies(c.Anomaly, to)
	}).watching(func(c config.AnomalyCommand) config.HostSilentRule { return silentRule(c.Anomaly) })
)

var registered []Entry

// All returns every fold, always in the same order.
func All() []Entry { return slices.Clone(registered) }

// Names returns the names of all folds, in the order of All.
func Names() (names []string) {
	for _, e := range registered {
		names = append(names, e.Name())
	}
	return names
}

// ByName returns the fold of a name, or nil.
func ByName(name string) Entry {
	if i := slices.Index(Names(), name); i >= 0 {
		return registered[i]
	}
	return nil
}

// Entry is one fold without its types.
type Entry interface {
	// Name is that of the fold; its program is gputap-NAME.
	Name() string
	// New returns an empty fold with the default options, as the program makes it.
	New() Fold
	// NewUnlimited returns an empty fold with every option at zero, so that no process expires.
	NewUnlimited() Fold
	// Kinds are those that the fold reads, heartbeats included.
	Kinds() []schema.Kind
	// AddFlags adds the program's flags.
	AddFlags(to *pflag.FlagSet)
	// PrintConfig prints the program's configuration, without secrets. It returns config.ErrHelp when that worked.
	PrintConfig(name string, args []string) error
}

// Command is the configuration of a consumer program.
type Command interface {
	Validate() error
	Sections() (config.NATS, config.Consumer, config.Metrics, config.Log)
}

// Definition is what programs must know of one fold: C is the program's configuration, F its state.
type Definition[C Command, F Fold] struct {
	name     string
	defaults func() C
	create   func(C, outputs) F
	silence  func(C) config.HostSilentRule // nil: the program does not watch for silent hosts
}

func define[C Command, F Fold](name string, defaults func() C, create func(C, outputs) F) *Definition[C, F] {
	d := &Definition[C, F]{name: name, defaults: defaults, create: create}
	registered = append(registered, d)
	return d
}

// watching makes the program watch for silent hosts.
func (d *Definition[C, F]) watching(silence func(C) config.HostSilentRule) *Definition[C, F] {
	d.silence = silence
	return d
}

// With returns the fold with other options, and with functions that receive its alerts and summaries. They may be nil.
// The entry is not registered.
func (d *Definition[C, F]) With(c C, raise func(alert.Alert), summarize func(rank.Summary)) Entry {
	with := *d
	with.defaults = func() C { return c }
	with.create = func(c C, _ outputs) F { return d.create(c, outputs{raise, summarize}) }
	return &with
}

func (d *Definition[C, F]) Name() string { return d.name }

func (d *Definition[C, F]) New() Fold { return d.create(d.defaults(), outputs{}) }

func (d *Definition[C, F]) NewUnlimited() Fold {
	var zero C
	return d.create(zero, outputs{})
}

func (d *Definition[C, F]) Kinds() []schema.Kind { return d.New().Kinds() }

func (d *Definition[C, F]) AddFlags(to *pflag.FlagSet) { config.Flags(to, d.defaults()) }

func (d *Definition[C, F]) PrintConfig(name string, args []string) error {
	_, err := config.Load(name, append(slices.Clone(args), "--print-config"), d.defaults())
	return err
}
