package schema

import "time"

// RankWindow is the length of the windows of rank batches. They are aligned in wall time, so that the windows of hosts
// compare.
const RankWindow = 2 * time.Second

// Activity is a class of CUDA calls in a rank batch.
type Activity uint8

// Activities, as they travel in the columns fr and to.
const (
	NoActivity Activity = iota
	Launching
	CopyingHtoD
	CopyingDtoH
	CopyingElse // other copies, and sets
	Syncing
	Allocating // all calls of memory batches
	NumActivities
)

var activityWords = [NumActivities]string{
	Launching: "launch", CopyingHtoD: "HtoD", CopyingDtoH: "DtoH", CopyingElse: "copy", Syncing: "sync",
	Allocating: "memory",
}

// String returns the word for reports; "" for NoActivity.
func (a Activity) String() string { return word(activityWords[:], int(a)) }

// Rank is one event of a rank batch: what one process did in one window.
//
// With a From, it is about the pauses of 1 ms or more, in which no thread of the process made or was in a CUDA call,
// between a call of From and one of To. To is NoActivity while no call has ended the pause. A pause counts in the
// windows in which it lies. Without a From, it is about the calls of class To; a call counts in the window in which it
// returned. If both are NoActivity, the process has ended and has no windows from Time on.
type Rank struct {
	Time     KTime  // start of the window
	Duration uint64 // ns: sum of pauses; of calls from entry to return, 0 for launches; of waits alone for Syncing
	Thread   uint32 // index into Batch.Threads: the first thread of the process
	Bytes    uint64 // copied
	From, To Activity
	Count    uint64 // of calls or pauses
}

// AddRank adds an event to a rank batch.
func (b *Builder) AddRank(e *Rank) {
	c, i := &b.columns, b.events
	c[colTime].add(uint64(e.Time), i)
	c[colDuration].add(e.Duration, i)
	c[colThread].add(uint64(e.Thread), i)
	c[colBytes].add(e.Bytes, i)
	c[colFrom].add(uint64(e.From), i)
	c[colTo].add(uint64(e.To), i)
	c[colCount].add(e.Count, i)
	b.events++
}

// Rank returns event i of a rank batch. Classes that this reader does not know read as CopyingElse.
func (b *Batch) Rank(i int) Rank {
	c := &b.columns
	return Rank{
		Time: KTime(c[colTime].At(i)), Duration: c[colDuration].At(i), Thread: uint32(c[colThread].At(i)),
		Bytes: c[colBytes].At(i), From: activity(c[colFrom].At(i)), To: activity(c[colTo].At(i)),
		Count: c[colCount].At(i),
	}
}

func activity(v uint64) Activity {
	if v >= uint64(NumActivities) {
		return CopyingElse
	}
	return Activity(v)
}
