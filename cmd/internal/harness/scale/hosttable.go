package main

import (
	"fmt"
	"slices"
)

type hostResult struct {
	Function string       `json:"function"` // called by the program
	CPUs     []int        `json:"cpus"`     // of the producer and of raw publishers; null: all
	Leader   int          `json:"leader"`   // node that leads the stream, to which all connect
	Passes   []pass       `json:"passes"`
	Medians  []hostMedian `json:"medians"`
	folded
}

// hostMedian has the medians over all rounds, for the producer or a raw publisher.
type hostMedian struct {
	Window          int       `json:"window"` // 0: the producer
	EventsPerSecond float64   `json:"events_per_second"`
	MessageEvents   float64   `json:"events_per_message"`
	MessageBytes    float64   `json:"bytes_per_message"`
	CPU             float64   `json:"cpu_seconds_per_million_events"`
	NodesCPU        float64   `json:"node_cpu_seconds_per_million_events"`
	Ratio           float64   `json:"ratio"`  // of the producer's events/s to these
	Ratios          []float64 `json:"ratios"` // of each round
}

func (p *pass) rate() float64 { return p.Events / p.Took }

func (r *hostResult) conclude() {
	of := map[int][]pass{}
	for _, p := range r.Passes {
		of[p.Window] = append(of[p.Window], p)
	}
	r.Medians = nil
	for _, window := range []int{0, 1, manyAcks} {
		list := of[window]
		if len(list) == 0 {
			continue // the run ended early
		}
		middle := func(value func(p *pass) float64) float64 {
			var all []float64
			for i := range list {
				all = append(all, value(&list[i]))
			}
			return median(all)
		}
		m := hostMedian{
			Window: window, EventsPerSecond: middle((*pass).rate),
			MessageEvents: middle(func(p *pass) float64 { return p.Events / p.Messages }),
			MessageBytes:  middle(func(p *pass) float64 { return p.Bytes / p.Messages }),
			CPU:           middle(func(p *pass) float64 { return p.processesCPU() / p.Events * 1e6 }),
			NodesCPU:      middle(func(p *pass) float64 { return p.nodesCPU() / p.Events * 1e6 }),
		}
		for i := range min(len(list), len(of[0])) {
			m.Ratios = append(m.Ratios, of[0][i].rate()/list[i].rate())
		}
		r.Medians = append(r.Medians, m)
		r.Medians[len(r.Medians)-1].Ratio = r.Medians[0].EventsPerSecond / m.EventsPerSecond
	}
}

// median sorts the list, which is not empty.
func median(list []float64) float64 {
	slices.Sort(list)
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}

func (r *result) printHost(h *hostResult) {
	if len(h.Medians) == 0 {
		return // the run ended early
	}
	fmt.Printf("| %s, one host on CPUs %s, medians of %d rounds | M events/s, min to max "+
		"| ratio of the producer, min to max | events and bytes of a batch | its CPU s per M events | nodes |\n"+
		"| --- | ---: | ---: | ---: | ---: | ---: |\n",
		h.Function, cpuNames(h.CPUs), len(h.Medians[0].Ratios))
	for _, m := range h.Medians {
		who, ratio := "producer, ring to ack", ""
		if m.Window > 0 {
			who = fmt.Sprintf("raw publisher of the same bytes, %d in flight", m.Window)
			ratio = fmt.Sprintf("%.2f, %.2f to %.2f", m.Ratio, slices.Min(m.Ratios), slices.Max(m.Ratios))
		}
		var rates []float64
		for i := range h.Passes {
			if h.Passes[i].Window == m.Window {
				rates = append(rates, h.Passes[i].rate()/1e6)
			}
		}
		fmt.Printf("| %s | %.2f, %.2f to %.2f | %s | %.0f, %.0f | %.3f | %.3f |\n",
			who, m.EventsPerSecond/1e6, slices.Min(rates), slices.Max(rates), ratio,
			m.MessageEvents, m.MessageBytes, m.CPU, m.NodesCPU)
	}
	fmt.Println()
	r.printFolded(&h.folded)
}
