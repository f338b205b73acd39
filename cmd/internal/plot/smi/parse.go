package smi

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

const (
	longestLine = 4 << 10 // bytes; longer lines are no rows
	mostGPUs    = 1024    // of one log
	mostMiB     = 1 << 33 // exact as a number of bytes in a float64
)

// Options tells what a log itself does not tell.
type Options struct {
	Location *time.Location // of the timestamps; nil is the local one
	Interval time.Duration  // of rows without timestamps, as in -lms; 0 is one second
}

// Parse reads a log: the output of nvidia-smi --query-gpu=… --format=csv, or the older two columns of time and MiB. It
// fails if the reader fails, or if there is no row that it can read.
func Parse(r io.Reader, o Options) (Log, error) {
	if o.Location == nil {
		o.Location = time.Local
	}
	if o.Interval <= 0 {
		o.Interval = time.Second
	}
	p := parser{options: o, gpus: map[string]int{}}
	lines := bufio.NewReaderSize(r, longestLine)
	for {
		line, whole, err := nextLine(lines)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return p.log, fmt.Errorf("read nvidia-smi log: %w", err)
		}
		p.line++
		if !whole {
			p.skip(errors.New("too long"))
		} else if err := p.row(line); err != nil {
			p.skip(err)
		}
	}
	if len(p.log.GPUs) == 0 {
		return p.log, p.noRows()
	}
	return p.log, nil
}

// nextLine returns the next line without its end. Of a line that is too long, it returns the first part.
func nextLine(r *bufio.Reader) (line string, whole bool, err error) {
	part, more, err := r.ReadLine()
	line, whole = string(part), !more
	for more && err == nil {
		_, more, err = r.ReadLine()
	}
	if errors.Is(err, io.EOF) && line != "" {
		err = nil
	}
	return line, whole, err
}

type parser struct {
	options Options
	log     Log
	line    int
	columns *columns       // nil before the header or the first row
	gpus    map[string]int // the place in log.GPUs by uuid or index
	rows    []int          // of each GPU, for rows without time
}

func (p *parser) skip(reason error) {
	p.log.Skipped++
	if p.log.FirstSkipped == "" {
		p.log.FirstSkipped = fmt.Sprintf("line %d: %v", p.line, reason)
	}
}

func (p *parser) noRows() error {
	if p.log.Skipped == 0 {
		return errors.New("read nvidia-smi log: it has no rows")
	}
	return fmt.Errorf("read nvidia-smi log: none of %s can be read; the first one is %s",
		rows(p.log.Skipped), p.log.FirstSkipped)
}

// row adds one line to the log. Empty lines and headers are no rows.
func (p *parser) row(line string) error {
	if p.line == 1 {
		line = strings.TrimPrefix(line, "\ufeff")
	}
	if strings.TrimSpace(line) == "" {
		return nil
	}
	cells := strings.Split(line, ",")
	for i, cell := range cells {
		cells[i] = strings.TrimSpace(cell)
	}
	if c, ok := headerColumns(cells); ok {
		p.columns = &c
		return nil
	}
	if p.columns == nil {
		c, err := guessColumns(cells)
		if err != nil {
			return err
		}
		if _, err := p.sample(c, cells); err != nil {
			return err
		}
		p.columns = &c
	}
	return p.add(*p.columns, cells)
}

// row is one row before it is given to its GPU.
type row struct {
	wall        time.Time // zero without a column of times
	used        int64
	utilization int
}

// sample reads the values of a row.
func (p *parser) sample(c columns, cells []string) (r row, err error) {
	if len(cells) != c.width {
		return r, fmt.Errorf("%d columns instead of %d", len(cells), c.width)
	}
	mib, err := strconv.ParseUint(strings.TrimSuffix(cells[c.memory], " MiB"), 10, 64)
	if err != nil || mib > mostMiB {
		return r, fmt.Errorf("%q is no memory in MiB", cells[c.memory])
	}
	r.used, r.utilization = int64(mib)<<20, -1
	if c.utilization >= 0 {
		percent, err := strconv.ParseUint(strings.TrimSuffix(cells[c.utilization], " %"), 10, 7)
		if err == nil { // "[N/A]" is frequent
			r.utilization = int(percent)
		}
	}
	if c.time >= 0 {
		r.wall, err = time.ParseInLocation("2006/01/02 15:04:05", cells[c.time], p.options.Location)
		if err != nil {
			return r, fmt.Errorf("%q is no time such as 2026/11/24 19:00:01.123", cells[c.time])
		}
	}
	return r, nil
}

// add appends a row to its GPU.
func (p *parser) add(c columns, cells []string) error {
	r, err := p.sample(c, cells)
	if err != nil {
		return err
	}
	i, err := p.gpu(c, cells)
	if err != nil {
		return err
	}
	g := &p.log.GPUs[i]
	at := time.Duration(p.rows[i]) * p.options.Interval
	if c.time >= 0 {
		if p.log.Start.IsZero() {
			p.log.Start = earliest(r.wall, time.Time{})
		}
		at = earliest(r.wall, p.log.Start.Add(g.last())).Sub(p.log.Start)
	}
	p.rows[i]++
	if len(g.Samples) > 0 {
		if at < g.last() {
			p.log.Backward++
			return nil
		}
		if at == g.last() && c.uuid < 0 && c.index < 0 {
			p.log.Ambiguous++
		}
	}
	g.append(Sample{at, r.used, r.utilization})
	return nil
}

// gpu returns the place of a row's GPU.
func (p *parser) gpu(c columns, cells []string) (int, error) {
	key, g := "", GPU{Index: -1}
	if c.index >= 0 {
		index, err := strconv.ParseUint(cells[c.index], 10, 16)
		if err != nil {
			return 0, fmt.Errorf("%q is no index of a GPU", cells[c.index])
		}
		g.Index, key = int(index), cells[c.index]
	}
	if c.uuid >= 0 {
		g.UUID, key = cells[c.uuid], cells[c.uuid]
	}
	if c.name >= 0 {
		g.Name = cells[c.name]
	}
	i, known := p.gpus[key]
	if !known {
		if i = len(p.log.GPUs); i == mostGPUs {
			return 0, fmt.Errorf("more than %d GPUs", mostGPUs)
		}
		p.gpus[key] = i
		p.log.GPUs, p.rows = append(p.log.GPUs, g), append(p.rows, 0)
	}
	return i, nil
}

// earliest returns the earliest of the times with the wall clock of t that is not before last. In autumn, a clock shows
// each time of one hour twice. If all are before last, it returns t.
func earliest(t, last time.Time) time.Time {
	if after := t.Sub(last); after >= 0 && after < time.Minute {
		return t // most rows
	}
	for _, candidate := range []time.Time{t.Add(-time.Hour), t, t.Add(time.Hour)} {
		if candidate.Format(time.DateTime) == t.Format(time.DateTime) && !candidate.Before(last) {
			return candidate
		}
	}
	return t
}

// last returns the time of the last sample.
func (g *GPU) last() time.Duration {
	if n := len(g.Samples); n > 0 {
		return g.Samples[n-1].At
	}
	return 0
}

// append adds a sample. Of equal samples in sequence, the first and the last stay.
func (g *GPU) append(s Sample) {
	if n := len(g.Samples); n > 1 && g.Samples[n-1].same(s) && g.Samples[n-2].same(s) {
		g.Samples[n-1] = s
		return
	}
	g.Samples = append(g.Samples, s)
}

func (s Sample) same(other Sample) bool {
	return s.Used == other.Used && s.Utilization == other.Utilization
}
