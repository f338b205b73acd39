package plot

import (
	"math"
	"strconv"
	"strings"
)

// Unit is what the values of a chart are measured in.
type Unit uint8

// The units.
const (
	Bytes          Unit = iota // powers of 1024
	BytesPerSecond             // powers of 1000, as NVIDIA and the commands of gputap print rates
	Count                      // powers of 1000
)

// prefixes returns the base of a unit and the names of its powers. Counts have no unit: the prefix follows the number.
func (u Unit) prefixes() (base float64, names []string) {
	switch u {
	case Bytes:
		return 1024, []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	case BytesPerSecond:
		return 1000, []string{"B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s"}
	default:
		return 1000, []string{"", "k", "M", "G", "T", "P"}
	}
}

// scale returns the largest unit that is at most v, and its name.
func (u Unit) scale(v float64) (factor float64, name string) {
	base, names := u.prefixes()
	factor, name = 1, names[0]
	for _, next := range names[1:] {
		if math.Abs(v) < factor*base {
			break
		}
		factor, name = factor*base, next
	}
	return factor, name
}

// Format returns a value with its unit and up to two decimals: 11.4 GiB, 25.31 GB/s, 1.2k.
func (u Unit) Format(v float64) string {
	factor, name := u.scale(v)
	if base, _ := u.prefixes(); math.Round(math.Abs(v)/factor*100)/100 >= base {
		factor, name = u.scale(factor * base) // 1023.999 KiB are 1 MiB
	}
	text := strconv.FormatFloat(v/factor, 'f', 2, 64)
	text = strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
	if u == Count {
		return text + name
	}
	return text + " " + name
}

// valueAxis is the axis of values: its ticks are the multiples of step from low to high.
type valueAxis struct {
	unit      Unit
	low, high float64
	step      float64
	factor    float64 // of the labels
	name      string  // of the labels' unit
}

// newValueAxis returns the axis from low to high with about count ticks, at most one more. Steps are round in the
// axis's unit: powers of two for bytes, otherwise 1, 2 or 5 times a power of ten.
func newValueAxis(u Unit, low, high float64, count int) valueAxis {
	a := valueAxis{unit: u, low: low, high: high}
	least := (high - low) / float64(max(1, count))
	a.factor, a.name = u.scale(max(math.Abs(low), math.Abs(high)))
	if u == Bytes {
		a.step = math.Exp2(math.Ceil(math.Log2(least)))
	} else {
		a.step = decimalStep(least)
	}
	if u != BytesPerSecond {
		a.step = max(1, a.step)
	}
	return a
}

// decimalStep returns the least of 1, 2 and 5 times a power of ten that is at least v.
func decimalStep(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= v*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// ticks returns the values with a tick.
func (a valueAxis) ticks() (ticks []float64) {
	for i := math.Ceil(a.low/a.step - 1e-9); i*a.step <= a.high*(1+1e-9); i++ {
		ticks = append(ticks, i*a.step)
	}
	return ticks
}

// label returns the text of a tick. All texts of an axis have the same number of decimals, but 0 has none.
func (a valueAxis) label(v float64) string {
	if v == 0 {
		return "0"
	}
	decimals := 0
	for scaled := a.step / a.factor; decimals < 12 && math.Abs(scaled-math.Round(scaled)) > 1e-6; decimals++ {
		scaled *= 10
	}
	text := strconv.FormatFloat(v/a.factor, 'f', decimals, 64)
	if a.unit == Count {
		return text + a.name
	}
	return text
}

// title returns the label of the axis with its unit.
func (a valueAxis) title(label string) string {
	switch {
	case a.unit == Count || a.name == "":
		return label
	case label == "":
		return a.name
	default:
		return label + " (" + a.name + ")"
	}
}
