package screen

import (
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer/alert"
	"github.com/gputap/gputap/consumer/anomaly"
)

// View returns the screen.
func (m *Model) View() tea.View {
	v := tea.NewView(strings.Join(m.lines(), "\n"))
	v.AltScreen = true
	return v
}

// lines returns the lines of the screen: as many as it is high.
func (m *Model) lines() []string {
	lines := append(m.head(), m.table()...)
	if m.help {
		lines = strings.Split("Keys and columns of gputap top. Any key closes this page.\n\n"+helpText, "\n")
		for i := range lines {
			lines[i] = m.cut(lines[i])
		}
	}
	for len(lines) < m.height {
		lines = append(lines, "")
	}
	lines = lines[:max(1, m.height)]
	if !m.once {
		lines[len(lines)-1] = m.foot()
	}
	return lines
}

// body is how many rows of the table the screen shows.
func (m *Model) body() int {
	rows := m.height - len(m.head()) - 1
	if !m.once {
		rows-- // the last line
	}
	return max(1, rows)
}

// head is the lines above the table.
func (m *Model) head() []string {
	if m.overview == nil {
		return []string{"gputap top", ""}
	}
	lines := []string{m.fleet(), m.cut(m.answer())}
	if len(m.pages) == 1 {
		if alert := m.alert(); alert != "" {
			lines = append(lines, alert)
		}
		return lines
	}
	for _, text := range m.description() {
		lines = append(lines, m.cut(text))
	}
	return lines
}

func (m *Model) cut(text string) string { return cut(text, m.width) }

// fleet is the sums of all processes.
func (m *Model) fleet() string {
	o := m.overview
	var live, running, growing, suspect, unknown uint64
	for _, a := range o.Processes {
		live += a.LiveBytes
		if a.Memory(0) == nil {
			unknown++
		}
		if !a.Ended {
			running++
		}
		switch styleOf(a.State()) {
		case red:
			suspect++
		case yellow:
			growing++
		}
	}
	parts := []struct {
		text  string
		style style
	}{
		{app.Plural(uint64(o.Hosts), "host", "hosts"), bold},
		{app.Plural(running, "process", "processes"), bold},
		{app.Bytes(live) + " live", bold},
		{fmt.Sprintf("%d suspect", suspect), when(suspect > 0, red)},
		{fmt.Sprintf("%d growing", growing), when(growing > 0, yellow)},
		{app.Plural(uint64(len(o.Firing)), "alert", "alerts"), when(len(o.Firing) > 0, red)},
	}
	if unknown > 0 && live == 0 {
		parts[2].text = "memory unknown"
	}
	if o.Heard < o.Hosts {
		parts[0].text = fmt.Sprintf("%d of %s", o.Heard, parts[0].text)
	}
	if o.NoMemory { // nothing is known of what follows from it
		parts[0].text, parts[1].text, parts[2].text = "hosts unknown",
			app.Plural(uint64(len(o.Processes)), "process", "processes"), "memory unknown"
		parts = append(parts[:3], parts[5])
	}
	switch last := &parts[len(parts)-1]; {
	case o.NoAlerts && len(o.Firing) == 0:
		last.text = "alerts unknown"
	case o.NoAlerts:
		last.text += " or more"
	}
	var line strings.Builder
	for i, p := range parts {
		if i > 0 {
			line.WriteString("  ")
		}
		line.WriteString(m.opts.Styles.paint(p.text, p.style))
	}
	return ansi.Truncate(line.String(), m.width, "…")
}

func when(is bool, s style) style {
	if is {
		return s
	}
	return bold
}

// answer names the shards that answered, the age of the answer, the order, and the filters.
func (m *Model) answer() string {
	o := m.overview
	parts := []string{fmt.Sprintf("%d of %d shards", o.Answered, o.Shards)}
	if len(o.Missing) > 0 {
		parts[0] += "; " + o.MissingText()
	}
	switch moving := o.MovingText(); {
	case moving != "":
		parts = append(parts, moving)
	case len(o.NotRunning) > 0:
		parts = append(parts, "not running: "+strings.Join(o.NotRunning, ", "))
	}
	parts = append(parts, app.Age(m.opts.Now().Sub(o.Time))+" ago")
	if m.paused {
		parts = append(parts, "PAUSED")
	}
	if len(m.pages) == 1 {
		parts = append(parts, "by "+orders[m.order].name)
	}
	if m.opts.Scope != "" {
		parts = append(parts, m.opts.Scope)
	}
	if f := m.page().filter; f != "" {
		parts = append(parts, fmt.Sprintf("%s with %q", app.Plural(uint64(len(m.rows)), "row", "rows"), f))
	}
	return strings.Join(parts, "  ")
}

// alert is the gravest alert that fires, of these the newest.
func (m *Model) alert() string {
	if len(m.overview.Firing) == 0 {
		return ""
	}
	grave := func(a *anomaly.Alert) int { return slices.Index(severities, a.Severity) }
	a := &m.overview.Firing[0]
	for i := range m.overview.Firing { // newest first
		if other := &m.overview.Firing[i]; grave(other) > grave(a) {
			a = other
		}
	}
	text := fmt.Sprintf("ALERT %s %s, %s ago: %s", a.Severity, a.Subject(), app.Age(m.overview.Time.Sub(a.Time)),
		a.Message)
	return m.opts.Styles.paint(m.cut(text), red)
}

// severities are those of alerts, the gravest last.
var severities = []string{alert.Info, alert.Warning, alert.Critical}

const maxWhy = 4 // lines about the verdicts of a process

// description is the lines about one process.
func (m *Model) description() []string {
	s := m.pages[1].subject
	title := fmt.Sprintf("%s/%s/%d", s.Cluster, s.Host, s.PID)
	p := m.process
	if p == nil {
		return []string{title}
	}
	title += fmt.Sprintf(" %s  user %s  %s  for %s", p.Comm, p.UserText(), p.State(),
		app.Age(m.overview.Time.Sub(p.Start)))
	if job := p.JobText(); job != "" {
		title += "  job " + job
	}
	lines := []string{title}
	for i := range p.Verdicts {
		if v := &p.Verdicts[i]; v.Grows() {
			why := app.Printable(fmt.Sprintf("%s %s: %s%s", v.GPUText(), v.State, v.Why, v.FullText()))
			lines = append(lines, strings.Split(ansi.Wordwrap(why, m.width, ""), "\n")...)
		}
	}
	lines = lines[:min(len(lines), 1+maxWhy)]
	all := p.LiveAllocations + p.HostMemory.LiveAllocations
	of := fmt.Sprintf("live %s, peak %s; ", app.Bytes(p.LiveBytes), app.Bytes(p.PeakBytes))
	if p.Memory(0) == nil {
		return append(lines, "memory unknown: gputap-leak did not answer")
	}
	if n := uint64(len(p.Largest)); n < all {
		of += fmt.Sprintf("the largest %d of %d allocations", n, all)
	} else {
		of += app.Plural(all, "allocation", "allocations")
	}
	if len(m.pages) == 3 {
		of = "allocations of " + m.pages[2].group.text()
	}
	return append(lines, of)
}

// table is the titles and the rows that the screen has room for.
func (m *Model) table() (lines []string) {
	all, now := allocationColumns, time.Time{}
	switch len(m.pages) {
	case 1:
		all = columnsOfProcesses(m.order, m.overview != nil && m.overview.SeveralClusters())
	case 2:
		all = groupColumns
	}
	if m.overview != nil {
		now = m.overview.Time
	}
	columns, places := fit(all, m.width)
	heading := strings.TrimRight(ansi.Truncate(line(columns, titles(columns)), m.width, ""), " ")
	lines = append(lines, m.opts.Styles.paint(heading, bold))
	p := m.page()
	for i := p.top; i < len(m.rows) && i < p.top+m.body(); i++ {
		lines = append(lines, m.row(&m.rows[i], columns, places, now, i == p.cursor))
	}
	return lines
}

// row is one line of the table. The row under the cursor begins with a mark.
func (m *Model) row(r *row, columns []column, places []int, now time.Time, marked bool) string {
	cells := r.cells(now)
	shown := make([]string, 0, len(places))
	for _, place := range places {
		shown = append(shown, cells[place])
	}
	text := ansi.Truncate(line(columns, shown), m.width, "")
	if marked && !m.once {
		return m.opts.Styles.paint(">"+text[1:], reverse)
	}
	if first := 1 + columns[0].width; r.style != "" && len(text) > first {
		return m.opts.Styles.paint(text[:first], r.style) + text[first:]
	}
	return strings.TrimRight(text, " ")
}

// foot is the last line: the error of the last question, the filter while it is typed, or the keys.
func (m *Model) foot() string {
	switch {
	case m.typing:
		return m.cut("show rows with: " + m.page().filter + "_")
	case m.err != nil:
		return m.opts.Styles.paint(m.cut("cannot refresh: "+m.err.Error()), red)
	case m.overview == nil:
		return m.cut("asking the consumers…")
	}
	return m.cut("? help  / filter  < > sort  space pause  enter open  esc back  q quit")
}
