package demo

import (
	"fmt"
	"slices"
	"time"
)

// Result is the result of one scenario. Its JSON keys are a contract.
type Result struct {
	Name     string            `json:"name"`
	OK       bool              `json:"ok"`
	Expected map[string]any    `json:"expected"`
	Observed map[string]any    `json:"observed"`
	Lost     map[string]uint64 `json:"lost"` // events, by cause
	Error    string            `json:"error,omitempty"`
	Checks   []Check           `json:"-"` // in the order in which they were made
	Took     time.Duration     `json:"-"`
}

// Check compares one figure. The expected value comes from the stub, from the workload or from the listing that the
// scenario reproduces; the observed value comes from gputap.
type Check struct {
	What     string
	Expected any // equal to Observed, or bounds of a float64
	Observed any
}

// bounds are the smallest and the largest correct value of a figure.
type bounds struct {
	Least float64 `json:"least"`
	Most  float64 `json:"most"`
}

func (b bounds) String() string { return fmt.Sprintf("%.5g to %.5g", b.Least, b.Most) }

// OK reports whether the observed value is a correct one.
func (c Check) OK() bool {
	if b, ok := c.Expected.(bounds); ok {
		got, ok := c.Observed.(float64)
		return ok && b.Least <= got && got <= b.Most
	}
	return c.Expected == c.Observed
}

// checks are the figures of one comparison.
type checks []Check

func (c *checks) add(what string, expected, observed any) {
	*c = append(*c, Check{what, expected, observed})
}

// addUnlessZero leaves out a figure that is 0 on both sides.
func (c *checks) addUnlessZero(what string, expected, observed uint64) {
	if expected|observed != 0 {
		c.add(what, expected, observed)
	}
}

func (c checks) ok() bool { return !slices.ContainsFunc(c, func(c Check) bool { return !c.OK() }) }
