package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// selectFlags select messages for a recording.
type selectFlags struct {
	cluster, host, job string
	kinds              []string
}

var kindWords = []string{"memory", "launch", "copy", "sync", "tensor", "host", "rank"}

// addFlags adds the flags. verb is what happens to the selected messages.
func (s *selectFlags) addFlags(cmd *cobra.Command, verb string) {
	flags := cmd.Flags()
	flags.StringVar(&s.cluster, "cluster", "", verb+" only this cluster")
	flags.StringVar(&s.host, "host", "", verb+" only this host")
	flags.StringVar(&s.job, "job", "", verb+" only hosts on which a job of this pattern runs")
	flags.StringSliceVar(&s.kinds, "kind", nil,
		verb+" only these kinds: memory, launch, copy, sync, tensor, host, rank")
	completeWith(cmd, "kind", kindWords...)
}

// selected returns the flags that were set, as typed; "": there are none.
func (s *selectFlags) selected() string {
	var flags []string
	for _, one := range []struct{ name, value string }{
		{"cluster", s.cluster}, {"host", s.host}, {"job", s.job}, {"kind", strings.Join(s.kinds, ",")},
	} {
		if one.value != "" {
			flags = append(flags, "--"+one.name+" "+one.value)
		}
	}
	return strings.Join(flags, " ")
}

func (s *selectFlags) selection() (recording.Selection, error) {
	selection := recording.Selection{Cluster: s.cluster, Host: s.host}
	for _, word := range s.kinds {
		kind := schema.ParseKind(word)
		if kind == schema.KindNone {
			return selection, fmt.Errorf("--kind: unknown %q; use memory, launch, copy, sync, tensor, host or rank",
				word)
		}
		selection.Kinds = append(selection.Kinds, kind)
	}
	if _, err := recording.NewJobHosts(s.job); err != nil {
		return selection, fmt.Errorf("--job: %w", err)
	}
	if selection.Job = s.job; s.job != "" && slices.Equal(selection.Kinds, []schema.Kind{schema.KindHost}) {
		return selection, errors.New("--job: heartbeats do not name jobs; select more kinds")
	}
	return selection, nil
}
