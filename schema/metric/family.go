package metric

import (
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// Type is the type of a family.
type Type string

// Types, as the exposition format spells them. Histograms are native, with classic buckets for scrapes of text.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// Component is the part of gputap that shows a family.
type Component string

// Components, in the order of the documentation.
const (
	Program   Component = "program" // each program
	Producer  Component = "producer"
	Consumer  Component = "consumer" // each consumer
	Leak      Component = "leak"
	Anomaly   Component = "anomaly"
	Launch    Component = "launch"
	Bandwidth Component = "bandwidth"
)

// Components are all components.
var Components = []Component{Program, Producer, Consumer, Leak, Anomaly, Launch, Bandwidth}

// Life says how long a series stays on the page.
type Life string

// Lives of series. A program that ends takes its series with it.
const (
	LifeProgram Life = "program" // while the program runs
	LifeShard   Life = "shard"   // while the instance owns the shard
	LifeHost    Life = "host"    // until the host is forgotten: 24 h without a batch of it
	LifeProcess Life = "process" // until the process ends
	LifeAlert   Life = "alert"   // until five minutes after the alert cleared
)

// Labels that several families share.
var (
	// Host identifies a host.
	Host = []string{"cluster", "hostname"}
	// GPU identifies a GPU. gpu is the ordinal in the numbering of the process that uses it.
	GPU = with(Host, "gpu", "UUID")
	// Workload identifies the program that uses a GPU. A label whose value is unknown is empty.
	Workload = with(GPU, "pod", "container", "unit", "user", "job", "comm")
	// Process identifies one process on one GPU. Only gauges of running processes have a PID.
	Process = with(Workload, "pid")
)

// Family is one metric family.
type Family struct {
	Name      string
	Type      Type
	Component Component
	Life      Life
	Labels    []string
	Help      string

	desc *prometheus.Desc
}

func with(labels []string, more ...string) []string { return slices.Concat(labels, more) }

// Families are all families, by component.
var Families = slices.Concat(programFamilies, producerFamilies, consumerFamilies, memoryFamilies, torchFamilies,
	hostFamilies, alertFamilies("leak", Leak), alertFamilies("anomaly", Anomaly), jobFamilies, launchFamilies,
	bandwidthFamilies)

var byName = func() map[string]*Family {
	all := make(map[string]*Family, len(Families))
	for i := range Families {
		f := &Families[i]
		if all[f.Name] != nil {
			panic("metric family " + f.Name + " is twice in the table of schema/metric")
		}
		f.desc = prometheus.NewDesc(f.Name, f.Help, f.Labels, nil)
		all[f.Name] = f
	}
	return all
}()

// Find returns the family of a name; nil: unknown.
func Find(name string) *Family { return byName[name] }

func find(name string) *Family {
	f := Find(name)
	if f == nil {
		panic(fmt.Sprintf("metric family %s is not in the table of schema/metric: add it", name))
	}
	return f
}

// Desc returns the description of a family, always the same one. It panics if the family is unknown.
func Desc(name string) *prometheus.Desc { return find(name).desc }

// Opts returns the options of an instrument whose other labels are constant. It panics if the family is unknown.
func Opts(name string, constant prometheus.Labels) prometheus.Opts {
	f := find(name)
	return prometheus.Opts{Name: f.Name, Help: f.Help, ConstLabels: constant}
}

// HistogramOpts returns the options of a histogram with classic buckets. It panics if the family is unknown.
func HistogramOpts(name string, constant prometheus.Labels, buckets ...float64) prometheus.HistogramOpts {
	f := find(name)
	return prometheus.HistogramOpts{Name: f.Name, Help: f.Help, ConstLabels: constant, Buckets: buckets}
}
