package process

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gputap/gputap/consumer/snapshot"
	"github.com/gputap/gputap/schema"
)

// Call counts the calls of one symbol by one process.
type Call struct {
	Symbol string
	Op     schema.Op
	OK     uint64
	Failed uint64
	Errors map[uint32]uint64 // by CUresult, of which the first 256 are told apart; nil without failures

	Recorded uint64 // calls recorded into a graph; they are neither OK nor failed
}

const (
	maxCalls   = 256 // of a list. The table of probed symbols is far shorter
	maxResults = 256 // of Call.Errors. The driver has about a hundred
)

// Calls are the calls of one process in order of first use. The list is short and is searched linearly.
type Calls []Call

// Find returns the counter of a symbol and adds it if it is new. Symbols above the limit share the counter "other".
// The pointer is valid until the next Find.
func (c *Calls) Find(ref *schema.CallRef) *Call {
	for i := range *c {
		if known := &(*c)[i]; known.Symbol == ref.Symbol {
			if known.Op == schema.OpRecord && ref.Op != schema.OpRecord {
				known.Op = ref.Op // the operation of the call when it is not recorded
			}
			return known
		}
	}
	if len(*c) == maxCalls {
		return &(*c)[maxCalls-1]
	}
	if len(*c) == maxCalls-1 {
		ref = &schema.CallRef{Symbol: "other"}
	}
	*c = append(*c, Call{Symbol: ref.Symbol, Op: ref.Op})
	return &(*c)[len(*c)-1]
}

// Count adds one call with its result.
func (c *Call) Count(result uint32) {
	if result == 0 {
		c.OK++
		return
	}
	c.Failed++
	if c.Errors == nil {
		c.Errors = map[uint32]uint64{}
	}
	if c.Errors[result] > 0 || len(c.Errors) < maxResults {
		c.Errors[result]++
	}
}

// Clone returns a copy for a report.
func (c Calls) Clone() []Call {
	list := slices.Clone(c)
	for i := range list {
		list[i].Errors = maps.Clone(list[i].Errors)
	}
	return list
}

func (c *Calls) code(to *snapshot.Codec) {
	snapshot.List(to, (*[]Call)(c), 6, func(call *Call) {
		to.String(&call.Symbol)
		CodeWord(to, &call.Op, schema.ParseOp)
		snapshot.Uint(to, &call.OK, &call.Failed, &call.Recorded)
		snapshot.Map(to, &call.Errors, 2, cmp.Compare, func(result *uint32, n *uint64) {
			snapshot.Uint(to, result)
			snapshot.Uint(to, n)
		})
		if len(call.Errors) > maxResults {
			to.Fail("more than %d results", maxResults)
		}
	})
	if len(*c) > maxCalls {
		to.Fail("more than %d calls", maxCalls)
	}
}
