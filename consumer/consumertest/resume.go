package consumertest

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"

	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// Saved is a fold whose state can be saved.
type Saved interface {
	Apply(b *schema.Batch) error
	Snapshot(yield func(snapshot.Section) error) error
	Restore(snapshot.Section) error
}

// Step is what a fold is given: a message, or that batches of its host were lost.
type Step struct {
	Message []byte
	Lost    uint64 // batches; 0: there is a Message
	From    schema.Header
}

// Steps are messages alone.
func Steps(messages ...[]byte) (steps []Step) {
	for _, m := range messages {
		steps = append(steps, Step{Message: m})
	}
	return steps
}

// Recorded is the recorded run of schema/testdata, for tests of the packages below consumer.
func Recorded(tb testing.TB) (steps []Step) {
	tb.Helper()
	file, err := os.Open("../../schema/testdata/pytorch.batches.gz")
	if err != nil {
		tb.Fatal(err)
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		tb.Fatal(err)
	}
	data, err := io.ReadAll(unpacked)
	if err != nil {
		tb.Fatal(err)
	}
	for len(data) > 0 {
		n := binary.LittleEndian.Uint32(data)
		steps = append(steps, Step{Message: data[4 : 4+n]})
		data = data[4+n:]
	}
	return steps
}

// Take has the fold take steps.
func Take(tb testing.TB, fold Saved, steps ...Step) {
	tb.Helper()
	decoder, batch := schema.NewDecoder(), &schema.Batch{}
	for _, s := range steps {
		if s.Lost > 0 {
			if aware, ok := fold.(interface {
				Lost(cluster, host, boot string, batches uint64)
			}); ok {
				aware.Lost(s.From.Cluster, s.From.Host, s.From.BootID, s.Lost)
			}
			continue
		}
		if err := decoder.Decode(s.Message, batch); err != nil {
			tb.Fatal(err)
		}
		if err := fold.Apply(batch); err != nil {
			tb.Fatal(err)
		}
	}
}

// Sections are copies of the fold's.
func Sections(tb testing.TB, fold Saved) (all []snapshot.Section) {
	tb.Helper()
	err := fold.Snapshot(func(s snapshot.Section) error {
		s.Data = bytes.Clone(s.Data)
		all = append(all, s)
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

// Restore gives sections to a new fold, which it returns.
func Restore[F Saved](tb testing.TB, fold F, sections []snapshot.Section) F {
	tb.Helper()
	for _, s := range sections {
		if err := fold.Restore(s); err != nil {
			tb.Fatal(err)
		}
	}
	return fold
}

// Resumes checks that a fold which is saved and restored after k steps, in that many places, goes on as the one that
// was never disturbed: the same sections byte by byte, and the same view. Every host's section is the same
// when it alone was restored.
func Resumes[F Saved](t *testing.T, steps []Step, places int, fresh func() F, view func(testing.TB, F) []byte) {
	t.Helper()
	whole := fresh()
	Take(t, whole, steps...)
	last, page := Sections(t, whole), view(t, whole)
	prefix, taken := fresh(), 0
	for _, k := range cuts(len(steps), places) {
		Take(t, prefix, steps[taken:k]...)
		taken = k
		saved := Sections(t, prefix)
		again := Restore(t, fresh(), saved)
		same(t, k, "restored", Sections(t, again), saved)
		if got, want := view(t, again), view(t, prefix); !bytes.Equal(got, want) {
			t.Fatalf("restored after %d steps, it shows\n%s\nwant\n%s", k, got, want)
		}
		Take(t, again, steps[k:]...)
		same(t, k, "at the end", Sections(t, again), last)
		if got := view(t, again); !bytes.Equal(got, page) {
			t.Fatalf("restored after %d steps, in the end it shows\n%s\nwant\n%s", k, got, page)
		}
		for _, s := range saved[1:] {
			alone := Restore(t, fresh(), []snapshot.Section{s})
			same(t, k, "alone", Sections(t, alone)[1:], []snapshot.Section{s})
		}
	}
}

// Splits checks that a fold whose hosts are moved to two others, one of which gets the section of no host too,
// goes on for each host as it would have: show gives what a fold shows of one host.
func Splits[F Saved](t *testing.T, steps []Step, fresh func() F, show func(F, snapshot.HostID) []byte) {
	t.Helper()
	whole, half := fresh(), len(steps)/2
	Take(t, whole, steps[:half]...)
	saved := Sections(t, whole)
	Take(t, whole, steps[half:]...)
	if len(saved) < 3 {
		t.Fatal("one host cannot be split")
	}
	var parts [2]F
	of := map[snapshot.HostID]int{}
	for i := range parts {
		parts[i] = fresh()
	}
	for i, s := range saved {
		of[snapshot.HostID{Cluster: s.Cluster, Host: s.Host}] = i % 2
		Restore(t, parts[i%2], []snapshot.Section{s})
	}
	for _, s := range steps[half:] {
		from := s.From
		if s.Lost == 0 {
			from = Decode(t, s.Message).Header
		}
		Take(t, parts[of[snapshot.HostID{Cluster: from.Cluster, Host: from.Host}]], s)
	}
	for id, i := range of {
		if got, want := show(parts[i], id), show(whole, id); !bytes.Equal(got, want) {
			t.Fatalf("of %q/%q the part shows\n%s\nwant\n%s", id.Cluster, id.Host, got, want)
		}
	}
}

// Golden checks that the snapshot of each version in testdata still means what it did. update writes that of the
// present one, of fold.
func Golden[F Saved](t *testing.T, update bool, version int, fold F, fresh func() F, view func(testing.TB, F) []byte) {
	t.Helper()
	if update {
		var w snapshot.Writer
		for _, s := range Sections(t, fold) {
			w.String(s.Cluster)
			w.String(s.Host)
			w.Bytes(s.Data)
		}
		write(t, fmt.Sprintf("testdata/snapshot_v%d.golden", version), w.Data())
		write(t, fmt.Sprintf("testdata/snapshot_v%d.txt", version), view(t, fold))
	}
	for v := 1; v <= version; v++ {
		r := snapshot.NewReader(read(t, fmt.Sprintf("testdata/snapshot_v%d.golden", v)))
		var saved []snapshot.Section
		for r.Room(1) > 0 {
			saved = append(saved, snapshot.Section{Cluster: r.String(), Host: r.String(), Data: r.Bytes()})
		}
		old := Restore(t, fresh(), saved)
		if got, want := view(t, old), read(t, fmt.Sprintf("testdata/snapshot_v%d.txt", v)); !bytes.Equal(got, want) {
			t.Errorf("version %d: it shows\n%s\nwant\n%s", v, got, want)
		}
		if v == version {
			same(t, 0, "golden", Sections(t, old), saved)
		}
	}
}

func write(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(name, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// FuzzRestore gives new folds any bytes for a section.
func FuzzRestore[F Saved](f *testing.F, fresh func() F, view func(testing.TB, F) []byte) {
	steps := Traffic(f, 5, 40)
	fold := fresh()
	Take(f, fold, steps[:30]...)
	for _, s := range Sections(f, fold) {
		f.Add(s.Cluster, s.Host, s.Data)
	}
	f.Fuzz(func(t *testing.T, cluster, host string, data []byte) {
		fold := fresh()
		err := fold.Restore(snapshot.Section{Cluster: cluster, Host: host, Data: data})
		switch {
		case err == nil:
			Use(t, fold, view, steps[30:]...)
		case !errors.Is(err, snapshot.ErrDamaged) && !errors.Is(err, snapshot.ErrVersion):
			t.Fatalf("an error of neither kind: %v", err)
		}
	})
}

// cuts are that many places among n steps, or all, both ends included.
func cuts(n, most int) (at []int) {
	for i := range most {
		if k := i * n / (most - 1); i == 0 || k > at[len(at)-1] {
			at = append(at, k)
		}
	}
	return at
}

func same(t *testing.T, k int, when string, got, want []snapshot.Section) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("after %d steps, %s: %d sections, want %d", k, when, len(got), len(want))
	}
	for i := range got {
		g, w := got[i], want[i]
		if g.Cluster != w.Cluster || g.Host != w.Host || !bytes.Equal(g.Data, w.Data) {
			t.Fatalf("after %d steps, %s: the section of %q/%q differs from %q/%q:\n%q\nwant\n%q",
				k, when, g.Cluster, g.Host, w.Cluster, w.Host, g.Data, w.Data)
		}
	}
}

// Hostile gives the fold sections that are cut off or have bits flipped: it refuses all that are cut off,
// takes or refuses the others, and what it takes it can go on with. A section asks for little more memory
// than it has bytes.
func Hostile[F Saved](t *testing.T, sections []snapshot.Section, fresh func() F, view func(testing.TB, F) []byte, next ...Step) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, s := range sections {
		for n := range s.Data {
			cut := s
			cut.Data = s.Data[:n]
			if err := restore(t, fresh(), cut); err == nil {
				t.Fatalf("the first %d of %d bytes of %q/%q are taken for a section", n, len(s.Data), s.Cluster, s.Host)
			}
		}
		for range 150 {
			flipped := s
			flipped.Data = bytes.Clone(s.Data)
			for range 1 + rng.IntN(3) {
				flipped.Data[rng.IntN(len(s.Data))] ^= 1 << rng.IntN(8)
			}
			fold := fresh()
			if restore(t, fold, flipped) == nil {
				Use(t, fold, view, next...)
			}
		}
	}
}

// Use does with a fold all that is done with one, whatever state it took.
func Use[F Saved](tb testing.TB, fold F, view func(testing.TB, F) []byte, next ...Step) {
	tb.Helper()
	Take(tb, fold, next...)
	view(tb, fold)
	Sections(tb, fold)
}

func restore(t *testing.T, fold Saved, s snapshot.Section) error {
	t.Helper()
	if len(s.Data)%32 != 0 { // to ask for what was allocated stops the world
		return fold.Restore(s)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := fold.Restore(s)
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20+256*uint64(len(s.Data)) {
		t.Fatalf("%d bytes were allocated for a section of %d", got, len(s.Data))
	}
	return err
}
