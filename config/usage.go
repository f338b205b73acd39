package config

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// usage is the part of --help that differs between programs.
type usage struct {
	about    string
	examples []string // arguments of the program
	exits    string   // exit statuses in addition to 0, 1 and 2
}

const sharing = `
Several instances share the shards; when one stops, the others take over its shards.`

var usages = map[string]usage{
	"gputap-producer": {
		`Watch the CUDA driver calls of every process on this host and publish them to NATS JetStream.
Needs root, or CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH.`,
		[]string{
			"--nats.url nats://bus:4222 --producer.cluster c1",
			"--config /etc/gputap.yaml --outbox /var/lib/gputap/outbox --outbox-max-bytes 20GiB",
			"--features memory --filter.comm python3",
		},
		"; 6 privileges are missing.\n" +
			"The status is 1 if batches are lost at the end: NATS did not ack them, and there is no --outbox",
	},
	"gputap-leak": {
		"Report the memory that every process holds and did not free, and raise alerts about leaks." + sharing,
		[]string{
			"--nats.url nats://bus:4222 --metrics-addr :9441", "--display-interval 10s",
			"--consumer.shard 3 --consumer.from 2026-11-20T08:00:00Z --display-interval 10s",
		}, "",
	},
	"gputap-launch": {
		"Count the kernel launches of every process by kernel and shape." + sharing,
		[]string{"--nats.url nats://bus:4222 --metrics-addr :9443", "--display-interval 10s"}, "",
	},
	"gputap-bandwidth": {
		"Measure the copies of every process by direction." + sharing,
		[]string{"--nats.url nats://bus:4222 --metrics-addr :9444", "--display-interval 10s"}, "",
	},
	"gputap-anomaly": {
		`Raise alerts about odd allocations, memory that ran out, fewer launches, slower copies, slow ranks, lost events and
silent hosts.` + sharing,
		[]string{"--nats.url nats://bus:4222 --metrics-addr :9442", "--anomaly-mode observe --display-interval 10s"},
		"",
	},
}

// help prints the purpose of a program, examples and its flags.
func help(name string, flags *pflag.FlagSet) {
	var text strings.Builder
	u := usages[name]
	if u.about != "" {
		fmt.Fprintf(&text, "%s\n\n", u.about)
	}
	fmt.Fprintf(&text, "Usage:\n  %s [flags]\n\n", name)
	if len(u.examples) > 0 {
		examples := strings.Join(u.examples, "\n  "+name+" ")
		fmt.Fprintf(&text, "Examples:\n  %s %s\n\n", name, examples)
	}
	fmt.Fprintf(&text, `Every flag is also a YAML key (--config) and a variable: --nats.url is %sNATS__URL. Flags override variables,
which override the file. A flag may be spelled like its key. --version prints the version.

Exit status: 0 after a clean end; 1 an error; 2 wrong flags or configuration%s.

Flags:
%s`, envPrefix, u.exits, flags.FlagUsages())
	fmt.Fprint(os.Stdout, text.String())
}
