package job

import (
	"fmt"
	"slices"
	"time"

	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/schema"
)

const (
	leastWaiting = 0.05 // share of the time that the others wait
	mostShare    = 0.5  // of their waiting, for the slow rank
	leastScore   = -4.0
	leastSpread  = 0.02
	deviations   = 1.2533 // a deviation in mean distances, of normal noise
	kept         = 4      // windows that say something
	toFire       = 3      // of which so many are against one rank
	toClear      = 30     // windows in a row that are not against the rank: one minute
	waited       = 10     // of which those count as so many in which it waits with the others
	likeOthers   = 0.75   // of their waiting, at the place of the alert
)

// place is where a rank waits: classes of calls before and after a pause, or the class of calls alone.
type place uint8

const numPlaces = int(schema.NumActivities) * int(schema.NumActivities)

// syncing is the place of calls that wait for the GPU.
var syncing = placeOf(schema.NoActivity, schema.Syncing)

func placeOf(from, to schema.Activity) place {
	return place(int(from)*int(schema.NumActivities) + int(to))
}

func (p place) from() schema.Activity { return schema.Activity(int(p) / int(schema.NumActivities)) }
func (p place) to() schema.Activity   { return schema.Activity(int(p) % int(schema.NumActivities)) }

// mayBe reports whether a pause without an end may belong to another place.
func (p place) mayBe(other place) bool {
	return p.from() != schema.NoActivity && p.to() == schema.NoActivity && p != other &&
		(other == syncing || other.from() == p.from())
}

// add adds the time of a row at which the rank waited.
func (c *cell) add(e *schema.Rank) {
	if e.From == schema.NoActivity && e.To != schema.Syncing || e.Duration == 0 {
		return
	}
	share := min(1, float64(e.Duration)/float64(schema.RankWindow))
	c.waits = append(c.waits, wait{placeOf(e.From, e.To), share})
}

// outcome is the verdict on one window.
type outcome struct {
	number   int64  // of the window, by the clock of that rank
	against  uint32 // 1 + rank; 0: nobody
	seq      uint64 // of the batch of that rank
	place    place
	share    float64 // of the time that the rank waits
	others   float64 // that the others wait, by their median
	score    float64 // distance in deviations
	distance float64
}

// suspect is a rank about which an alert fires.
type suspect struct {
	rank uint32
	key  alert.Key
	at   place
	good uint64 // windows in a row that are not against it; see waited

	scale int // at which the alert fired
}

// judge holds memory that comparisons share.
type judge struct {
	used   [numPlaces]bool      // by a rank of the window
	shares [numPlaces][]float64 // of used places, by rank
	others []float64
}

// compare judges a window in which no rank is missing.
func (f *Fold) compare(j *job, w *window) {
	f.book.Advance(j.id, endOf(w.number))
	for i := range j.scales {
		if whole := j.scales[i].add(w, scaleWindows[i]); whole != nil {
			f.compareAt(j, i, whole)
		}
	}
}

// compareAt judges a window of a scale.
func (f *Fold) compareAt(j *job, at int, w *window) {
	o, waiting := f.judge.window(j, at, w)
	if waiting { // else it says nothing
		j.scales[at].keep(o)
	}
	for _, s := range slices.Clone(j.firing) {
		switch {
		case f.cfg.Severity == "": // it fired before the program started again
			f.clear(j, s.rank, endOf(w.number), "the rule is off")
			continue
		case f.excludes(j.members[s.rank]):
			f.clear(j, s.rank, endOf(w.number), "the process is excluded")
			continue
		case s.scale != at:
			continue
		case o.against == s.rank+1:
			s.good = 0
		case f.judge.waits(s, int(j.ranks)):
			s.good += waited
		default:
			s.good++
		}
		if c := w.cells[s.rank]; c != nil && s.good >= toClear {
			quiet := toClear * time.Duration(scaleWindows[at]) * schema.RankWindow
			why := fmt.Sprintf("no window of %s was against it", quiet)
			if f.judge.waits(s, int(j.ranks)) {
				why = "it waited with the others"
			}
			f.clear(j, s.rank, endOf(c.number), why)
		}
	}
	if o.against > 0 {
		f.accuse(j, at, w, &o)
	}
}

// endOf returns when a window ended.
func endOf(number int64) time.Time { return time.Unix(0, (number+1)*windowNanos).UTC() }

// window compares the ranks at every place at which one of them waits. waiting reports whether most of them wait
// somewhere.
func (g *judge) window(j *job, scale int, w *window) (worst outcome, waiting bool) {
	n := int(j.ranks)
	g.used = [numPlaces]bool{}
	totals := make([]float64, n)
	for rank := range uint32(n) {
		for _, at := range w.cells[rank].waits {
			if !g.used[at.place] {
				g.used[at.place] = true
				g.shares[at.place] = append(g.shares[at.place][:0], make([]float64, n)...)
			}
			g.shares[at.place][rank] += at.share
			if at.place == syncing {
				totals[rank] += at.share
			}
		}
	}
	if scale == 0 {
		j.setWaiting(totals)
	}
	if n < leastRanks {
		return worst, false
	}
	for p := range g.used {
		if !g.used[p] {
			continue
		}
		o := g.place(&j.scales[scale], place(p))
		waiting = waiting || o.others >= leastWaiting
		if o.against > 0 && o.distance > worst.distance {
			c := w.cells[o.against-1]
			o.number, o.place, o.seq = c.number, place(p), c.seq
			worst = o
		}
	}
	return worst, waiting
}

// setWaiting sets the shares of the time that ranks are in waits.
func (j *job) setWaiting(shares []float64) {
	for rank, m := range j.members {
		if int(rank) < len(shares) {
			m.waiting = min(1, shares[rank])
		}
	}
	j.waiting = min(1, middle(shares))
}

// waits reports whether a rank waits with the others where it did not when the alert fired.
func (g *judge) waits(s *suspect, ranks int) bool {
	if !g.used[s.at] || int(s.rank) >= ranks {
		return false
	}
	shares := g.shares[s.at]
	g.others = append(append(g.others[:0], shares[:s.rank]...), shares[s.rank+1:]...)
	others := middle(g.others)
	return others >= leastWaiting && shares[s.rank] >= likeOthers*others
}

// place compares the shares of the ranks at one place.
func (g *judge) place(c *scale, at place) (o outcome) {
	least, shares := 0, g.shares[at]
	for rank, share := range shares {
		if share < shares[least] {
			least = rank
		}
	}
	g.others = append(append(g.others[:0], shares[:least]...), shares[least+1:]...)
	o.share, o.others = shares[least], middle(g.others)
	o.distance = o.others - o.share
	if o.others < leastWaiting {
		return o
	}
	sum := 0.0
	for _, share := range g.others {
		sum += max(share-o.others, o.others-share)
	}
	now := deviations * sum / float64(len(g.others))
	usual, known := c.spread[at]
	if !known {
		usual = now
	}
	c.spread[at] = max(now, (usual+now)/2)
	o.score = -o.distance / max(leastSpread, usual, now)
	if most := mostShare * o.others; o.score <= leastScore && o.share <= most && g.atMost(at, least) <= most {
		o.against = uint32(least) + 1
	}
	return o
}

// atMost returns the largest share that a rank may have at a place. A window closes before the end of a long wait is
// known, so a pause without an end may belong to another place. Ranks that begin to wait at different moments differ in
// what is known.
func (g *judge) atMost(at place, rank int) float64 {
	share := g.shares[at][rank]
	for i, used := range g.used {
		if other := place(i); used && (other.mayBe(at) || other == syncing && at.mayBe(syncing)) {
			share += g.shares[other][rank]
		}
	}
	return share
}

// middle sorts v and returns its median.
func middle(v []float64) float64 {
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// accuse raises an alert about a rank if enough windows of a scale are against it.
func (f *Fold) accuse(j *job, scale int, w *window, o *outcome) {
	rank, first := o.against-1, *o
	for _, before := range slices.Backward(j.scales[scale].last) {
		if before.against == o.against {
			first = before
		}
	}
	m, c := j.members[rank], w.cells[rank]
	if j.scales[scale].against(rank) < toFire || f.cfg.Severity == "" || m == nil || m.ID != c.id {
		return
	}
	if f.excludes(m) {
		f.book.Suppress(straggler, "excluded")
		return
	}
	k := alert.Key{Rule: straggler, Process: m.ID, Job: j.id.Host}
	for _, s := range j.firing {
		if s.rank == rank {
			s.good = 0 // also if it fired at another scale
		}
	}
	fired := f.book.Fire(k, endOf(o.number), c.seq, func() alert.Alert {
		a := alert.About(&m.Info)
		a.Severity = f.cfg.Severity
		a.Since = time.Unix(0, (first.number+1-int64(scaleWindows[scale]))*windowNanos).UTC()
		a.Value, a.Baseline, a.Score = round(o.share), round(o.others), round(o.score)
		a.Message = describe(j, m, rank, o)
		a.Evidence = alert.Evidence{Boot: m.ID.BootID, Run: c.run, Kind: schema.KindRank.String(), Seq: c.seq,
			SeqFrom: min(first.seq, c.seq), SeqTo: c.seq}
		return a
	})
	if fired {
		j.firing = append(j.firing, &suspect{rank: rank, key: k, at: o.place, scale: scale})
	}
}

// excludes reports whether no alert is raised about a member, which may be nil.
func (f *Fold) excludes(m *member) bool {
	return m != nil && f.cfg.Excluded != nil && f.cfg.Excluded(&m.Info)
}

// replace ends what is known of a rank, because another process has it or none.
func (f *Fold) replace(j *job, rank uint32, at time.Time, why string) {
	f.clear(j, rank, at, why)
	for i := range j.scales {
		c := &j.scales[i]
		c.last = slices.DeleteFunc(c.last, func(o outcome) bool { return o.against == rank+1 })
	}
}

// clear ends the alert about a rank, if one fires.
func (f *Fold) clear(j *job, rank uint32, at time.Time, why string) {
	j.firing = slices.DeleteFunc(j.firing, func(s *suspect) bool {
		if s.rank == rank {
			f.book.Clear(s.key, at, why)
		}
		return s.rank == rank
	})
}

func describe(j *job, m *member, rank uint32, o *outcome) string {
	where, others := "", 100*o.others
	switch from, to := o.place.from(), o.place.to(); {
	case from == schema.NoActivity:
		where = fmt.Sprintf("they are in calls that wait for the GPU %.0f %% of the time", others)
	case to == schema.NoActivity:
		where = fmt.Sprintf("they pause after calls of class %s %.0f %% of the time", from, others)
	default:
		where = fmt.Sprintf("they pause %.0f %% of the time between %s and %s", others, from, to)
	}
	return fmt.Sprintf("Rank %d of job %s, %s (pid %d) on %s, works while the other %d ranks wait: %s, this rank "+
		"%.0f %%. Check its CPUs, its input and what else it does.", rank, j.id.Host, m.Comm, m.ID.PID, m.ID.Host,
		j.ranks-1, where, 100*o.share)
}
