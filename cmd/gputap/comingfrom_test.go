package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/schema"
)

// older is every flag, metric and output of the older tools, by the section of docs/coming-from.md. The names are those
// of the tools' own pages and sources.
var older = map[string][]string{
	"GPUprobe": {
		"--memleak", "--cudatrace", "--bandwidth-util", "--metrics-addr", "--display-interval", "--libcudart-path",
		"--help", "--version", "cuda_memory_leaks", "cuda_kernel_launches", "cuda_error_histogram",
		"total_cuda_mallocs",
		"num_successful_mallocs", "num_failed_mallocs", "num_successful_frees", "num_failed_frees",
		"per-process memory maps", "0 Bytes", "WARN: cudaFree() called on unallocated region", "total kernel launches",
		"Traced N cudaMemcpy calls", "H2D", "D2H", "bytes/sec for", "per-process error histograms",
		"N bytes leaked from K cuda memory allocation(s)", "GPUprobe memleak utility", "GPUprobe cudatrace utility",
	},
	"gpu-memleak-trace": {
		"--trace-print", "--interval", "--export-metrics", "--update-interval", "--libcuda-path", "--log-verbose",
		"--debug", "--print-events", "--print-malloc-only-events", "--print-json", "Pid", "Tid", "DeviceID", "Uid",
		"Size",
		"Dptr", "Comm", "EventType", "Retval", "TsNs", "Scan Time", "DEV", "UID", "TotalSize", "LastTs",
		"Top allocations for TID", "TOTAL LEAKED", "NO EVENT.", "gpu_stressor.py", "gpu_mem_stressor.py",
		"gpu_mem_threads_leak.py", "gpu_alloc_anomaly.py", "memleak_stressor.py", "train_simulator.py",
		"train_large_model.py", "pid_monitor_csv.py", "run-stressor.sh", "basic-info.sh",
	},
	"The Nsight memory scripts": {
		"profile.sh", "APP_ROOT", "METRIC_DV", "CUDA_VISIBLE_DEVICES", "PROF_DIR", "PROF_FILE", ".nsys-rep", ".sqlite",
		"--cuda-memory-usage", "--gpu-metrics-device", "--stats", "--cudabacktrace", "valid.tsv", "invalid.tsv",
		"driver.tsv", "PID", "address", "start_time", "bytes", "mem_kind", "mem_op_type", "var_name", "call_stack",
		"DEVICE", "DEVICE_STATIC", "ARRAY", "PAGEABLE", "PINNED", "MANAGED", "MANAGED_STATIC", "UNKNOWN", "-i", "-o",
		"-a watermark", "-a usage", "-a leakage", "--no-header", "high water mark", "mpi allocated memory",
		"aggregated itemized high water mark", "total (B)", "leakage", "total leakage", "plot.py", "-u", "-s",
	},
}

// notOurs are code words of the page, outside of the first columns, that belong to no program of gputap.
var notOurs = []string{
	"libcuda.so.1", "5s", "-g", "malloc", "CUDA_VISIBLE_DEVICES", "CUDA_ERROR_OUT_OF_MEMORY", "/livez", "/readyz",
	"# EOF",
	".sqlite", ".tsv",
}

var codeWord = regexp.MustCompile("``? ?([^`]+|.*?) ?``?")

// TestComingFromNamesEveryOldThing: each flag, metric and output of the older tools is in a first column.
func TestComingFromNamesEveryOldThing(t *testing.T) {
	t.Parallel()
	page := docsPage(t, "coming-from.md")
	for section, names := range older {
		_, text, found := strings.Cut(page, "\n## "+section+"\n")
		if !found {
			t.Errorf("no section %s", section)
		}
		text, _, _ = strings.Cut(text, "\n## ")
		var first []string
		for line := range strings.Lines(text) {
			if cells := strings.Split(line, "|"); len(cells) > 3 {
				for _, m := range codeWord.FindAllStringSubmatch(cells[1], -1) {
					first = append(first, m[1])
				}
			}
		}
		for _, name := range names {
			if !slices.Contains(first, name) {
				t.Errorf("%s: no row for %s", section, name)
			}
		}
	}
}

// TestComingFromNamesWhatExists: each command, flag, metric, label, key and function of gputap on the page exists.
func TestComingFromNamesWhatExists(t *testing.T) {
	t.Parallel()
	page := docsPage(t, "coming-from.md")
	keys := docsPage(t, "output.md") + docsPage(t, "answers.md") + docsPage(t, "alerts.md") +
		docsPage(t, "analyze.md")
	metrics := labelsOfMetrics()
	checked := map[string]int{}
	fenced := false
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if cells := strings.Split(line, "|"); len(cells) > 3 {
			line = strings.Join(cells[2:], "|")
		}
		if fenced {
			continue
		}
		for _, m := range codeWord.FindAllStringSubmatch(line, -1) {
			word := m[1]
			name, labels, _ := strings.Cut(strings.TrimSuffix(word, "}"), "{")
			switch {
			case strings.HasPrefix(word, "gputap "), strings.HasPrefix(word, "gputap-"):
				checked["command"]++
				checkCommand(t, strings.Fields(word))
			case strings.HasPrefix(word, "gputap_"):
				checked["metric"]++
				has, known := metrics[name]
				if !known {
					t.Errorf("%s: no fold has this metric", name)
				}
				for label := range strings.SplitSeq(labels, ",") {
					if label != "" && !slices.Contains(has, label) {
						t.Errorf("%s: the metric has the labels %v", word, has)
					}
				}
			case strings.Contains(keys, "`"+word+"`"):
				checked["key"]++
			case slices.ContainsFunc(schema.Calls[:], func(c schema.Call) bool { return c.Symbol == word }):
				checked["function"]++
			case !slices.Contains(notOurs, word):
				t.Errorf("%s: neither a command, metric, JSON key nor function of gputap", word)
			}
		}
	}
	if checked["command"] < 20 || checked["metric"] < 8 || checked["key"] < 40 || checked["function"] < 2 {
		t.Errorf("checked only %v", checked)
	}
}

// checkCommand checks that a command line names a command, and flags of it.
func checkCommand(t *testing.T, line []string) {
	t.Helper()
	var flags *pflag.FlagSet
	if program, isDaemon := strings.CutPrefix(line[0], "gputap-"); isDaemon {
		flags = programFlags()[program]
	} else if c, rest, err := rootCommand().Find(line[1:]); err == nil {
		if len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
			t.Errorf("%v: no such command", line)
		}
		c.InitDefaultHelpFlag()
		flags = c.Flags()
		flags.AddFlagSet(c.InheritedFlags())
	}
	if flags == nil {
		t.Errorf("%v: no such command", line)
		return
	}
	for _, word := range line[1:] {
		name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
		if long := strings.HasPrefix(word, "--"); long && flags.Lookup(name) == nil ||
			!long && strings.HasPrefix(word, "-") && flags.ShorthandLookup(name) == nil {
			t.Errorf("%v: there is no flag %s", line, word)
		}
	}
}

// labelsOfMetrics returns the labels of the metrics of all folds, by name.
func labelsOfMetrics() map[string][]string {
	described := make(chan *prometheus.Desc)
	go func() {
		defer close(described)
		for _, f := range fold.All() {
			f.New().Describe(described)
		}
	}()
	form := regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{([\w,]*)\}`)
	labels := map[string][]string{}
	for d := range described {
		if m := form.FindStringSubmatch(d.String()); m != nil {
			labels[m[1]] = strings.Split(m[2], ",")
		}
	}
	return labels
}
