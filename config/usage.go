package config

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// usage is what --help says of a program.
type usage struct {
	about    string
	examples []string // what stands behind the program's name
}

const shares = " Instances share the shards and take over from each other."

var usages = map[string]usage{
	"gputap-producer": {
		"Watch the CUDA driver calls of every process of this host and publish them to NATS JetStream. Needs root, or CAP_BPF,\nCAP_PERFMON, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH: exit status 6 without.",
		[]string{
			"--nats.url nats://bus:4222 --producer.cluster c1",
			"--config /etc/gputap.yaml --outbox /var/lib/gputap/outbox --outbox-max-bytes 20GiB",
			"--features memory --filter.comm python3",
		},
	},
	"gputap-leak": {
		"Say what memory every process holds, and what it never freed." + shares,
		[]string{
			"--nats.url nats://bus:4222 --metrics.addr :9402", "--display-interval 10s",
			"--consumer.shard 3 --consumer.from 2026-11-20T08:00:00Z --display-interval 10s",
		},
	},
	"gputap-launch": {
		"Count what every process launches, by kernel and shape." + shares,
		[]string{"--nats.url nats://bus:4222 --metrics.addr :9403", "--display-interval 10s"},
	},
	"gputap-bandwidth": {
		"Measure what every process copies, by direction." + shares,
		[]string{"--nats.url nats://bus:4222 --metrics.addr :9404", "--display-interval 10s"},
	},
	"gputap-anomaly": {
		"Raise alerts: allocations unlike those before, and memory that ran out." + shares,
		[]string{"--nats.url nats://bus:4222 --metrics.addr :9405", "--display-interval 10s"},
	},
}

// help prints what a program is for, how it is called, and its flags.
func help(name string, flags *pflag.FlagSet) {
	var text strings.Builder
	u := usages[name]
	if u.about != "" {
		fmt.Fprintf(&text, "%s\n\n", u.about)
	}
	fmt.Fprintf(&text, "Usage:\n  %s [flags]\n\n", name)
	for i, e := range u.examples {
		if i == 0 {
			text.WriteString("Examples:\n")
		}
		fmt.Fprintf(&text, "  %s %s\n", name, e)
	}
	if len(u.examples) > 0 {
		text.WriteString("\n")
	}
	fmt.Fprintf(&text, "Every flag is also a YAML key (--config) and a variable: --nats.url is %sNATS__URL. --version alone prints the version.\n"+
		"Exit status: 0 ended as asked; 1 failed, or lost what it had at its end; 2 wrong flags or configuration.\n\nFlags:\n%s", envPrefix, flags.FlagUsages())
	fmt.Fprint(os.Stdout, text.String())
}
