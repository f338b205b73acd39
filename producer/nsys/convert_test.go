package nsys_test

import (
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/leak"
	"github.com/gputap/gputap/producer/nsys"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// convert converts an export into a recording beside it.
func convert(t testing.TB, path string, o nsys.Options) (string, nsys.Summary, error) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out.gtr")
	f, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, err := recording.NewWriter(f)
	if err != nil {
		t.Fatal(err)
	}
	s, err := nsys.Convert(t.Context(), path, w, o)
	if closed := w.Close(); err == nil {
		err = closed
	}
	return out, s, err
}

// messages calls see with each message of a recording and its batch.
func messages(t testing.TB, path string, see func(m *recording.Message, b *schema.Batch)) {
	t.Helper()
	r, err := recording.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	d, b := schema.NewDecoder(), schema.Batch{}
	for m, err := range r.Messages(recording.Filter{}) {
		if err == nil {
			err = d.Decode(m.Data, &b)
		}
		if err != nil {
			t.Fatal(err)
		}
		see(&m, &b)
	}
}

// folded replays a recording into a fold.
func folded(t testing.TB, path string) *leak.Tracker {
	t.Helper()
	fold := leak.New(leak.Config{})
	p := consumer.NewReplay(0, fold, true, slog.New(slog.DiscardHandler))
	messages(t, path, func(m *recording.Message, _ *schema.Batch) { p.Apply(m) })
	return fold
}

// TestTotalsEqualTheGenerator converts exports of each version, with rows in order and in none, and compares the fold
// leak and the batches with the naive counts.
func TestTotalsEqualTheGenerator(t *testing.T) {
	t.Parallel()
	for _, r := range releases {
		for _, shuffled := range []bool{false, true} {
			t.Run(r.name+map[bool]string{true: " shuffled"}[shuffled], func(t *testing.T) {
				t.Parallel()
				x := generate(t, r, plan{seed: 7, events: 6000, live: 300, shuffled: shuffled})
				path, s, err := convert(t, x.path, nsys.Options{})
				if err != nil {
					t.Fatal(err)
				}
				x.checkSummary(t, &s)
				x.checkMemory(t, folded(t, path).Report())
				x.checkBatches(t, path)
			})
		}
	}
}

func (x *export) checkSummary(t *testing.T, s *nsys.Summary) {
	t.Helper()
	memory, copies := s.Events[schema.KindMemory], s.Events[schema.KindCopy]
	if memory != x.events || copies != uint64(x.copies+x.sets) || s.Malformed != 0 {
		t.Errorf("events %v, %d malformed, want %d, %d, 0", s.Events, s.Malformed, x.events, x.copies+x.sets)
	}
	if s.UnmatchedFrees != x.unmatched || s.Reallocations != x.reallocs || s.SizeMismatches != x.mismatches ||
		x.unmatched*x.reallocs*x.mismatches == 0 {
		t.Errorf("%d unmatched frees, %d reallocations, %d size mismatches, want %d, %d, %d", s.UnmatchedFrees,
			s.Reallocations, s.SizeMismatches, x.unmatched, x.reallocs, x.mismatches)
	}
	if s.Host != hostname || !s.Session.Equal(time.Unix(0, sessionStart)) {
		t.Errorf("host %q, session %v", s.Host, s.Session)
	}
	if s.WithStack == 0 || s.WithCall == 0 || s.WithoutCall == 0 || s.WithStack+s.WithCall+s.WithoutCall != x.events {
		t.Errorf("stacks of %d, calls of %d, nothing of %d, want %d", s.WithStack, s.WithCall, s.WithoutCall, x.events)
	}
	if missing := len(s.Missing) > 0; missing == x.enums {
		t.Errorf("missing %v", s.Missing)
	}
}

func (x *export) checkMemory(t *testing.T, r leak.Report) {
	t.Helper()
	live, peak := map[use]uint64{}, map[use]uint64{}
	for _, p := range r.Processes {
		for _, g := range p.GPUs {
			u := use{p.ID.PID, uint32(g.Ordinal)}
			if live[u], peak[u] = g.LiveBytes, g.PeakBytes; x.enums && g.UUID != x.uuid(u) {
				t.Errorf("GPU %q of device %v, want %q", g.UUID, u, x.uuid(u))
			}
		}
		if p.HostLiveBytes != x.hostLive[p.ID.PID] {
			t.Errorf("%d bytes of host memory of %d, want %d", p.HostLiveBytes, p.ID.PID, x.hostLive[p.ID.PID])
		}
		want := map[bool]string{true: "train"}[x.enums]
		if p.Comm != want || p.ID.Host != hostname || p.Evidence != "complete" {
			t.Errorf("process %+v, want %q", p.Info, want)
		}
	}
	if !maps.Equal(live, x.live) || !maps.Equal(peak, x.peak) {
		t.Errorf("live %v, peak %v, want %v, %v", live, peak, x.live, x.peak)
	}
	if r.Counters.UnmatchedFrees != x.unmatched || r.Counters.ReallocOverLive != x.reallocs {
		t.Errorf("counters %+v, want %d, %d", r.Counters, x.unmatched, x.reallocs)
	}
}

// uuid is the GPU of a device.
func (x *export) uuid(u use) string {
	for i, pid := range pids {
		if pid == u.pid {
			return cards[(int(u.device)+i)%2]
		}
	}
	return ""
}

// checkBatches compares kernels, copies, stacks and the order.
func (x *export) checkBatches(t *testing.T, path string) {
	t.Helper()
	counted, copied, stacks := map[string]int{}, map[string]uint64{}, map[uint64]string{}
	var stored time.Time
	seqs := [schema.NumKinds]uint64{}
	copies, sets := 0, 0
	messages(t, path, func(m *recording.Message, b *schema.Batch) {
		if m.Stored.Before(stored) || b.Events > 0 && m.Stored.Before(b.Wall(b.Last)) {
			t.Errorf("message %d was stored at %v, and the one before at %v", m.Sequence, m.Stored, stored)
		}
		stored = m.Stored
		if seqs[b.Kind]++; b.Seq != seqs[b.Kind] {
			t.Errorf("batch number %d of kind %s has seq %d", seqs[b.Kind], b.Kind, b.Seq)
		}
		for i := range b.Events {
			switch b.Kind {
			case schema.KindMemory:
				if e := b.Memory(i); e.Stack > 0 {
					s := b.Stacks[e.Stack-1]
					stacks[uint64(e.Time)] += strings.Join(s.Frames, " < ") + "|" + s.Name + ";"
				}
			case schema.KindLaunch:
				s := b.Shapes[b.Launch(i).Shape]
				counted[b.Funcs[s.Func].Name]++
				if s.Block != [3]uint32{256, 1, 1} || s.Grid[0] == 0 || s.Grid[0] > 3 {
					t.Fatalf("shape %+v", s)
				}
			case schema.KindCopy:
				e := b.Copy(i)
				c := b.Calls[e.Call]
				if c.Op == schema.OpSet {
					sets++
					continue
				}
				copies++
				copied[c.Direction.String()] += e.Bytes
				if e.Duration != 999 || e.HostMem != schema.HostMemPageable {
					t.Fatalf("copy %+v", e)
				}
			}
		}
	})
	if !maps.Equal(counted, x.kernels) || !maps.Equal(copied, x.copied) || copies != x.copies || sets != x.sets {
		t.Errorf("kernels %v, copies %d %v, sets %d, want %v, %d %v, %d", counted, copies, copied, sets, x.kernels,
			x.copies, x.copied, x.sets)
	}
	if !maps.Equal(stacks, x.stacks) || len(stacks) == 0 {
		t.Errorf("%d stacks, want %d", len(stacks), len(x.stacks))
	}
}
