package snapshot_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/snapshot"
)

// effort is how much of each kind a test of one fold does.
type effort struct {
	traffics uint64 // random traffics
	hostile  uint64 // streams of any content
	places   int    // at which each is interrupted
	crowded  int    // places at which the traffic of more workloads than series is interrupted
	step     int    // bytes between the ends of truncated sections
	flips    int    // per section
}

func TestFolds(t *testing.T) {
	for _, s := range suites {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			t.Run("golden snapshot", s.testGolden)
			t.Run("hosts move to two other folds", s.testSplit)
			t.Run("a section of a newer version is refused", s.testNewer)
			s.run(t, effort{traffics: 2, hostile: 2, places: 4, crowded: 3, step: 37, flips: 20})
		})
	}
}

// run runs the tests that take long when they are thorough.
func (s suite) run(t *testing.T, e effort) {
	for n := range e.traffics {
		t.Run(fmt.Sprint("resume: traffic ", n), func(t *testing.T) {
			t.Parallel()
			s.resume(t, s.traffic(t, n, 120), e.places)
		})
	}
	t.Run("resume: recorded run", func(t *testing.T) {
		t.Parallel()
		s.resume(t, recorded(t), e.places)
	})
	t.Run("resume: hostile streams", func(t *testing.T) { s.testHostile(t, e.hostile) })
	if s.limited {
		t.Run("resume: more workloads than series", func(t *testing.T) { s.testCrowd(t, e.crowded) })
	}
	t.Run("a truncated section is refused", func(t *testing.T) { s.testTruncated(t, e.step) })
	t.Run("a section with flipped bits does no harm", func(t *testing.T) { s.testFlipped(t, e.flips) })
}

// view returns everything that the fold shows: its report and its metrics page.
func (s suite) view(tb testing.TB, fold fold) []byte {
	tb.Helper()
	return append(text(tb, s.report(fold)), consumertest.Page(tb, fold)...)
}

func text(tb testing.TB, report any) []byte {
	tb.Helper()
	text, err := json.MarshalIndent(report, "", " ")
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

// traffic returns n steps, and tensor batches between them if the fold reads those.
func (s suite) traffic(tb testing.TB, seed uint64, n int) []consumertest.Step {
	if s.steps != nil {
		return s.steps(tb, seed, n)
	}
	steps := consumertest.Traffic(tb, seed, n)
	if s.tensors {
		steps = consumertest.WithTensors(tb, seed, steps)
	}
	return steps
}

// resume saves and restores a fold after k steps, for several k. The restored fold must then behave like the fold that
// was never interrupted: the same sections byte by byte and the same view. The section of a host must also be the same
// when that section alone was restored.
func (s suite) resume(t *testing.T, steps []consumertest.Step, places int) {
	t.Helper()
	whole := s.new()
	consumertest.Take(t, whole, steps...)
	last, page := consumertest.Sections(t, whole), s.view(t, whole)
	prefix, taken := s.new(), 0
	for _, k := range cuts(len(steps), places) {
		consumertest.Take(t, prefix, steps[taken:k]...)
		taken = k
		saved := consumertest.Sections(t, prefix)
		again := consumertest.Restore(t, s.new(), saved)
		same(t, k, "restored", consumertest.Sections(t, again), saved)
		if got, want := s.view(t, again), s.view(t, prefix); !bytes.Equal(got, want) {
			t.Fatalf("restored after %d steps, the fold shows\n%s\nwant\n%s", k, got, want)
		}
		consumertest.Take(t, again, steps[k:]...)
		same(t, k, "at the end", consumertest.Sections(t, again), last)
		if got := s.view(t, again); !bytes.Equal(got, page) {
			t.Fatalf("restored after %d steps, the fold shows at the end\n%s\nwant\n%s", k, got, page)
		}
		for _, one := range saved[1:] {
			alone := consumertest.Restore(t, s.new(), []snapshot.Section{one})
			same(t, k, "alone", consumertest.Sections(t, alone)[1:], []snapshot.Section{one})
		}
	}
}

// cuts returns that many numbers spread evenly over 0 to n, both included; fewer when n is small.
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

func (s suite) testCrowd(t *testing.T, places int) {
	t.Parallel()
	steps := consumertest.Crowd(t)
	s.resume(t, steps, places)
	fold := s.new()
	consumertest.Take(t, fold, steps...)
	if !strings.Contains(string(consumertest.Page(t, fold)), `comm="other"`) {
		t.Error("every workload has a series: the steps do not exceed the limit")
	}
}

// testSplit moves the hosts of one fold to two others, one of which also gets the section of no host. Each host's
// report must then develop as it does in the fold that was not split.
func (s suite) testSplit(t *testing.T) {
	t.Parallel()
	steps := s.traffic(t, 9, 200)
	whole, half := s.new(), len(steps)/2
	consumertest.Take(t, whole, steps[:half]...)
	saved := consumertest.Sections(t, whole)
	consumertest.Take(t, whole, steps[half:]...)
	if len(saved) < 3 {
		t.Fatal("the traffic has fewer than two hosts")
	}
	parts := [2]fold{s.new(), s.new()}
	partOf := map[snapshot.HostID]int{}
	for i, section := range saved {
		partOf[snapshot.HostID{Cluster: section.Cluster, Host: section.Host}] = i % 2
		consumertest.Restore(t, parts[i%2], []snapshot.Section{section})
	}
	for _, step := range steps[half:] {
		from := step.From
		if step.Lost == 0 {
			from = consumertest.Decode(t, step.Message).Header
		}
		consumertest.Take(t, parts[partOf[snapshot.HostID{Cluster: from.Cluster, Host: from.Host}]], step)
	}
	for id, i := range partOf {
		if got, want := text(t, s.hostReport(parts[i], id)), text(t, s.hostReport(whole, id)); !bytes.Equal(got, want) {
			t.Fatalf("host %q of cluster %q: the part reports\n%s\nwant\n%s", id.Host, id.Cluster, got, want)
		}
	}
}

// damageable returns sections for the damage tests and the steps that follow them.
func (s suite) damageable(tb testing.TB) ([]snapshot.Section, []consumertest.Step) {
	steps := s.traffic(tb, 3, s.damage*3/2)
	fold := s.new()
	consumertest.Take(tb, fold, steps[:s.damage]...)
	return consumertest.Sections(tb, fold), steps[s.damage:]
}

// testTruncated cuts every section after 0, step, 2 step … bytes.
func (s suite) testTruncated(t *testing.T, step int) {
	t.Parallel()
	sections, _ := s.damageable(t)
	for _, section := range sections {
		for n := 0; n < len(section.Data); n += step {
			cut := section
			cut.Data = section.Data[:n]
			if err := s.new().Restore(cut); !errors.Is(err, snapshot.ErrDamaged) {
				t.Fatalf("the first %d of %d bytes of %q/%q: got %v, want ErrDamaged",
					n, len(section.Data), section.Cluster, section.Host, err)
			}
		}
	}
}

// testFlipped flips bits at random. The fold refuses the section, or it can continue with it.
func (s suite) testFlipped(t *testing.T, flips int) {
	t.Parallel()
	sections, next := s.damageable(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, section := range sections {
		for range flips {
			fold := s.new()
			err := fold.Restore(flip(rng, section))
			switch {
			case err == nil:
				s.use(t, fold, next...)
			case !errors.Is(err, snapshot.ErrDamaged) && !errors.Is(err, snapshot.ErrVersion):
				t.Fatalf("neither ErrDamaged nor ErrVersion: %v", err)
			}
		}
	}
}

func flip(rng *rand.Rand, s snapshot.Section) snapshot.Section {
	s.Data = bytes.Clone(s.Data)
	for range 1 + rng.IntN(3) {
		s.Data[rng.IntN(len(s.Data))] ^= 1 << rng.IntN(8)
	}
	return s
}

// use does with a fold all that a program does with one.
func (s suite) use(tb testing.TB, fold fold, next ...consumertest.Step) {
	tb.Helper()
	consumertest.Take(tb, fold, next...)
	s.view(tb, fold)
	consumertest.Sections(tb, fold)
}

// TestRestoreAllocatesLittle is not parallel: it measures all allocations of the process.
func TestRestoreAllocatesLittle(t *testing.T) {
	for _, s := range suites {
		t.Run(s.name, s.testMemory)
	}
}

func (s suite) testMemory(t *testing.T) {
	sections, _ := s.damageable(t)
	rng := rand.New(rand.NewPCG(3, 4))
	for _, section := range sections {
		for n := 0; n < len(section.Data); n += 32 {
			cut := section
			cut.Data = section.Data[:n]
			s.measure(t, cut)
		}
		for range 10 {
			s.measure(t, flip(rng, section))
		}
	}
}

func (s suite) measure(t *testing.T, section snapshot.Section) {
	t.Helper()
	fold := s.new()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_ = fold.Restore(section)
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20+256*uint64(len(section.Data)) {
		t.Fatalf("a section of %d bytes made Restore allocate %d bytes", len(section.Data), got)
	}
}

// testNewer raises the version of every section, which follows the fold's name.
func (s suite) testNewer(t *testing.T) {
	t.Parallel()
	sections, _ := s.damageable(t)
	for _, section := range sections {
		r := snapshot.NewReader(section.Data)
		_ = r.String()
		at := len(section.Data) - r.Room(1)
		if section.Data[at] != 1 {
			t.Fatalf("version %d, want 1", section.Data[at])
		}
		section.Data[at] = 2
		if err := s.new().Restore(section); !errors.Is(err, snapshot.ErrVersion) {
			t.Fatalf("got %v, want ErrVersion", err)
		}
	}
}

// FuzzRestore restores arbitrary bytes into a new fold.
func FuzzRestore(f *testing.F) {
	traffic := make([][]consumertest.Step, len(suites))
	for i, s := range suites {
		fold, steps := s.new(), s.traffic(f, 5, 40)
		traffic[i] = steps[30:]
		consumertest.Take(f, fold, steps[:30]...)
		for _, section := range consumertest.Sections(f, fold) {
			f.Add(uint(i), section.Cluster, section.Host, section.Data)
		}
	}
	f.Fuzz(func(t *testing.T, i uint, cluster, host string, data []byte) {
		i %= uint(len(suites))
		s, next := suites[i], traffic[i]
		fold := s.new()
		err := fold.Restore(snapshot.Section{Cluster: cluster, Host: host, Data: data})
		switch {
		case err == nil:
			s.use(t, fold, next...)
		case !errors.Is(err, snapshot.ErrDamaged) && !errors.Is(err, snapshot.ErrVersion):
			t.Fatalf("%s: neither ErrDamaged nor ErrVersion: %v", s.name, err)
		}
	})
}
