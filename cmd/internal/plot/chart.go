package plot

import (
	"iter"
	"slices"
	"time"
)

// Limit is the number of series that are drawn apart. A stack sums the others up as "other". In a chart of lines, the
// others are not drawn, and the note counts them. The largest peaks are kept.
const Limit = 7

// Chart describes a picture. The zero value is a chart without data.
type Chart struct {
	Title    string
	Subtitle string
	YLabel   string // what the values are, without the unit: "GPU memory"
	Unit     Unit

	// Begin is the time of At = 0. The time axis then shows the wall clock in Begin's location. If Begin is zero, the
	// axis shows the time since the start.
	Begin time.Time

	// Length is the least length of the time axis. The axis grows with the points of Series.
	Length time.Duration

	Series  []Series
	Stacked bool // areas on top of each other, instead of lines

	// Overlay are dashed lines above the series, such as what nvidia-smi reports. They are cut where they leave the
	// time of Series by more than a twentieth of the axis.
	Overlay []Series

	Marks []Mark
	Note  string // a remark below the chart, such as what the data lack

	// Failed returns why the points of a series ended early. It is called when all points are read; nil: never.
	Failed func() error
}

// Series is one line or area.
type Series struct {
	Name string // in the legend; an empty name has no entry there

	// Points are in the order of time, and are read once. A point before its predecessor is drawn at its predecessor's
	// time. Values that are not finite are skipped.
	Points iter.Seq[Point]

	// Step is a value that stays until the next point. Otherwise straight lines join the points. Areas of a stack are
	// always steps.
	Step bool

	// Ends says that nothing is known after the last point. Otherwise a step keeps its last value until the end of the
	// axis, unless that value is 0. A process that ended needs a last point of 0.
	Ends bool

	// Mark is the label of a dot at the first of the largest values; "": none. A stack and Overlay have no such dots.
	Mark string
}

// Point is a value at a time since the begin of the chart. The value is in bytes, bytes per second or a count.
type Point struct {
	At    time.Duration
	Value float64
}

// Mark is a dot with a label that belongs to no single series, such as the watermark of all. The label is Text, the
// value and the time.
type Mark struct {
	At    time.Duration
	Value float64
	Text  string
}

// Points returns the iterator of a slice.
func Points(points []Point) iter.Seq[Point] { return slices.Values(points) }
