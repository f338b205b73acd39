package config

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/knadh/koanf/providers/posflag"
	"github.com/spf13/pflag"
)

// TestSpellingsOfFlags sets every key of every program by each of its spellings. Help lists the flag once.
func TestSpellingsOfFlags(t *testing.T) {
	t.Parallel()
	for _, root := range commands() {
		flagsOf(root).VisitAll(func(known *pflag.Flag) {
			key := keyOf(known)
			for _, spelling := range []string{
				key, strings.ReplaceAll(key, "_", "-"), strings.ReplaceAll(key, ".", "-"), sameSeparators.Replace(key),
			} {
				flags := flagsOf(root)
				f := flags.Lookup(spelling)
				if f == nil || keyOf(f) != key {
					t.Errorf("%T: --%s is not a flag of %s", root, spelling, key)
					continue
				}
				text, want := valueOf(f.Value.Type())
				if err := flags.Parse([]string{"--" + spelling + "=" + text}); err != nil {
					t.Errorf("%T: %v", root, err)
				}
				if got := posflag.FlagVal(flags, f); !f.Changed || !reflect.DeepEqual(got, want) {
					t.Errorf("%T: --%s=%s sets %s to %#v, want %#v", root, spelling, text, key, got, want)
				}
				if spelling != f.Name && strings.Contains(flags.FlagUsages(), "--"+spelling+" ") {
					t.Errorf("%T: help shows --%s beside --%s", root, spelling, f.Name)
				}
			}
		})
	}
}

// valueOf returns a text for a flag of a type, and the value of the flag after it.
func valueOf(kind string) (text string, value any) {
	switch kind {
	case "int":
		return "77", 77
	case "duration":
		return "77s", 77 * time.Second
	case "bool":
		return "true", true
	case "bytes":
		return "77MiB", "77MiB"
	case "stringSlice":
		return "a,b", []string{"a", "b"}
	}
	return "text", "text"
}

func TestSpellingsOfShortFlags(t *testing.T) {
	t.Parallel()
	for spelling, key := range map[string]string{
		"metrics-addr": "metrics.addr", "metrics.addr": "metrics.addr", "library": "producer.libraries",
		"outbox-max-bytes": "producer.outbox_max_bytes", "outbox_max_bytes": "producer.outbox_max_bytes",
		"filter-comm":          "producer.filter.comm",
		"producer.batch-bytes": "producer.batch_bytes", "producer.batch_bytes": "producer.batch_bytes",
	} {
		flags := flagsOf(DefaultProducerCommand())
		if f := flags.Lookup(spelling); f == nil || keyOf(f) != key {
			t.Errorf("--%s is not a flag of %s", spelling, key)
		}
	}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	BusFlags(flags)
	if flags.Lookup("nats-url") == nil || flags.Lookup("nats.creds-file") == nil {
		t.Error("a command that reads no file knows fewer spellings")
	}
}

func TestSuggestionsAreClose(t *testing.T) {
	t.Parallel()
	known := []string{"nats.url", "producer.cluster", "producer.outbox_max_bytes", "run", "demo", "stream", "version"}
	for word, want := range map[string]string{
		"nats.uri": "nats.url", "nats.uurl": "nats.url", "nuts.url": "nats.url", "producer.clutser": "producer.cluster",
		"producer.outboxmaxbytes": "producer.outbox_max_bytes", "rnu": "run", "versin": "version",
		"nats.abl": "", "nats.user": "", "rm": "", "me": "", "top": "", "gpus.count": "", "producer.filter": "",
	} {
		if got := Nearest(word, known); got != want {
			t.Errorf("%s suggests %q, want %q", word, got, want)
		}
	}
}

func TestCheckVariables(t *testing.T) {
	t.Setenv("GPUTAP_LEAK_PORT", "tcp://10.0.0.1:80")
	t.Setenv("GPUTAP_ANYTHING", "x")
	t.Setenv("GPUTAP_PRODUCER__CLUSTER", "c")
	if err := CheckVariables(); err != nil {
		t.Error(err)
	}
	t.Setenv("GPUTAP_LEAK__PORT", "x")
	if err := CheckVariables(); err == nil || !strings.Contains(err.Error(), "GPUTAP_LEAK__PORT") {
		t.Errorf("got %v", err)
	}
}
