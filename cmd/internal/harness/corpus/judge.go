package corpus

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/consumer/rank"
	"github.com/gputap/gputap/consumer/trend"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// Labels are the labels.json of a half of the corpus, which programs/run.py writes.
type Labels struct {
	Recordings []struct {
		File   string `json:"file"`
		Factor int    `json:"factor"` // how much slower than recorded event time runs: with 30, 80 s become 40 min
	} `json:"recordings"`
	Programs map[string]Label `json:"programs"`
}

// Label is what one program says of itself.
type Label struct {
	Name        string   `json:"name"`
	Label       string   `json:"label"` // leak, innocent or odd
	Expect      []string `json:"expect"`
	LeakedBytes uint64   `json:"leaked_bytes"`
	Seconds     float64  `json:"seconds"`
	PID         uint32   `json:"pid"`
	Recording   string   `json:"recording"`
}

// Finding is what gputap said of one program.
type Finding struct {
	Label
	State        trend.State // the gravest that any of its processes had
	GrowingAfter float64     // stretched minutes from the start of the process to the first growing verdict; 0: none
	SuspectAfter float64
	SuspectBytes uint64
	Why          string         // of the last growing or suspect verdict
	Alerts       map[string]int // by rule, info included
	Grave        []string       // messages of alerts above info
}

// Judge folds the recordings of a directory, with event time stretched, every rule in mode alert and the default
// windows, and returns what was found for each program, sorted by name.
func Judge(dir string) ([]Finding, error) {
	data, err := os.ReadFile(filepath.Join(dir, "labels.json"))
	if err != nil {
		return nil, fmt.Errorf("read the labels: %w", err)
	}
	var labels Labels
	if err := json.Unmarshal(data, &labels); err != nil {
		return nil, fmt.Errorf("read the labels: %w", err)
	}
	found := map[string]*Finding{}
	for name, l := range labels.Programs {
		found[name] = &Finding{Label: l, Alerts: map[string]int{}}
	}
	for _, r := range labels.Recordings {
		if err := judge(filepath.Join(dir, r.File), schema.KTime(r.Factor), found); err != nil {
			return nil, err
		}
	}
	var all []Finding
	for _, f := range found {
		all = append(all, *f)
	}
	slices.SortFunc(all, func(a, b Finding) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// judge folds one recording.
func judge(path string, factor schema.KTime, found map[string]*Finding) error {
	r, err := recording.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	note := func(a alert.Alert) { noteAlert(found[a.Comm], &a) }
	memory := fold.NewMemory(leak.Config{
		OnVerdict: func(c leak.Change) { noteVerdict(found[c.Comm], &c) },
		Rules:     leak.Rules{Mode: alert.ModeAlert}, OnAlert: note,
	})
	var summaries []rank.Summary // that the fold anomaly published and did not read yet
	rules := config.DefaultAnomaly()
	rules.Mode = config.ModeAlert
	anomalies := fold.NewAnomalies(rules, note, func(s rank.Summary) { summaries = append(summaries, s) })
	var replays []*consumer.Replay
	for _, f := range []consumer.Stateful{memory, anomalies} {
		replays = append(replays, consumer.NewReplay(0, f, true, slog.New(slog.DiscardHandler)))
	}
	read := uint64(0) // messages
	apply := func(m *recording.Message) {
		read++
		m.Sequence = read
		for _, p := range replays {
			p.Apply(m)
		}
	}
	s := stretcher{decoder: schema.NewDecoder(), factor: factor}
	for m, err := range r.Messages(recording.Filter{}) {
		if err != nil {
			return err
		}
		if m.Data, err = s.message(m.Data); err != nil {
			return err
		}
		apply(&m)
		for ; len(summaries) > 0; summaries = summaries[1:] {
			one := &summaries[0]
			apply(&recording.Message{Subject: schema.Subject(0, one.Cluster, one.Job, schema.KindRank),
				Stored: m.Stored, Data: one.Message})
		}
	}
	return nil
}

// stretcher stretches messages.
type stretcher struct {
	factor   schema.KTime
	decoder  *schema.Decoder
	batch    schema.Batch
	builders [schema.NumKinds]*schema.Builder
}

func (s *stretcher) message(data []byte) ([]byte, error) {
	b := &s.batch
	if err := s.decoder.Decode(data, b); err != nil {
		return nil, err
	}
	if b.Kind == schema.KindNone {
		return nil, errors.New("the recording has a batch of an unknown kind")
	}
	if s.builders[b.Kind] == nil {
		s.builders[b.Kind] = schema.NewBuilder(b.Kind)
	}
	to := s.builders[b.Kind]
	to.Reset()
	stretch(b, to, s.factor)
	h := b.Header
	h.Run *= uint64(s.factor)
	return to.Encode(&h), nil
}

func noteVerdict(f *Finding, c *leak.Change) {
	if f == nil || !c.Verdict.State.Grows() {
		return
	}
	minutes := c.Verdict.At.Sub(c.Start).Minutes()
	f.State = max(f.State, c.Verdict.State)
	if f.Why = c.Verdict.Why; f.GrowingAfter == 0 {
		f.GrowingAfter = minutes
	}
	if c.Verdict.State == trend.Suspect {
		f.SuspectBytes = max(f.SuspectBytes, c.Verdict.SuspectBytes)
		if f.SuspectAfter == 0 {
			f.SuspectAfter = minutes
		}
	}
}

func noteAlert(f *Finding, a *alert.Alert) {
	if f == nil || a.State != alert.Firing {
		return
	}
	f.Alerts[a.Rule]++
	if a.Severity != alert.Info {
		f.Grave = append(f.Grave, a.Rule+": "+a.Message)
	}
}
