package screen

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/gputap/gputap/cmd/internal/answer"
	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/report"
)

// Options of a screen.
type Options struct {
	Interval time.Duration // between an answer and the next question
	Sort     string        // one of Orders
	Scope    string        // filters of the source, for people
	Styles   Styles
	Now      func() time.Time
}

// Model is the state of a screen.
type Model struct {
	ask           func(about *Subject) answered
	opts          Options
	width, height int
	once          bool // nobody presses a key

	overview *answer.Overview // the last answer; nil before the first
	process  *report.Process  // of the pages below the list; nil before its answer
	err      error            // of the last question
	asking   bool
	tick     int // number of the last timer that was set
	paused   bool

	order  int
	pages  []page // the list, then a process, then a group; the screen shows the last one
	rows   []row  // of that page
	help   bool
	typing bool // a filter
}

// page is one table.
type page struct {
	subject Subject  // of pages below the list
	group   groupKey // of the third page
	filter  string
	key     string // of the row under the cursor; "": the first row, whichever it is
	cursor  int
	top     int // first row on the screen
}

// New returns a screen that shows nothing before its first answer.
func New(ctx context.Context, source Source, opts Options) *Model {
	return &Model{
		ask:  func(about *Subject) answered { return question(ctx, source, about) },
		opts: opts, pages: []page{{}}, width: 80, height: 24,
		order: max(0, slices.IndexFunc(orders, func(o order) bool { return o.name == opts.Sort })),
	}
}

// answered is the end of a question.
type answered struct {
	overview *answer.Overview
	about    *Subject
	process  *report.Process
	err      error
}

// question asks for the processes, and for all about one of them.
func question(ctx context.Context, source Source, about *Subject) (a answered) {
	a.about = about
	if a.overview, a.err = source.Overview(ctx); a.err != nil {
		return a
	}
	if o := a.overview; o.Shards > 0 && o.Answered == 0 && o.Hosts == 0 && len(o.Processes) == 0 { // nobody answered
		return answered{about: about, err: app.Incomplete(o.Incomplete())}
	}
	if about != nil {
		a.process, a.err = source.Process(ctx, *about)
		if a.err == nil && a.process == nil {
			a.err = fmt.Errorf("no consumer knows process %s/%d any more; press esc", about.Host, about.PID)
		}
	}
	return a
}

type (
	dueMsg   int      // a timer: its number
	clockMsg struct{} // ages change
)

// Init asks the first question.
func (m *Model) Init() tea.Cmd { return tea.Batch(m.refresh(), clock()) }

func clock() tea.Cmd { return tea.Tick(time.Second, func(time.Time) tea.Msg { return clockMsg{} }) }

// refresh asks a question, unless one is being asked.
func (m *Model) refresh() tea.Cmd {
	if m.asking {
		return nil
	}
	m.asking = true
	about := m.about()
	return func() tea.Msg { return m.ask(about) }
}

// about returns the process of the pages below the list.
func (m *Model) about() *Subject {
	if len(m.pages) == 1 {
		return nil
	}
	return new(m.pages[1].subject)
}

// Update handles a key, an answer or a timer.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var next tea.Cmd
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		next = m.press(msg)
	case tea.PasteMsg:
		m.write(msg.Content)
	case answered:
		next = m.take(msg)
	case dueMsg:
		if int(msg) == m.tick && !m.paused {
			next = m.refresh()
		}
	case clockMsg:
		return m, clock()
	}
	m.settle()
	return m, next
}

// take shows an answer, and sets the timer of the next question. While the screen is paused it only takes a process
// that has none yet.
func (m *Model) take(a answered) tea.Cmd {
	m.asking = false
	if errors.Is(a.err, context.Canceled) {
		return nil
	}
	m.err = a.err
	if a.overview != nil && (!m.paused || m.overview == nil) {
		m.overview = a.overview
	}
	about := m.about()
	wanted := about == nil && a.about == nil || about != nil && a.about != nil && *about == *a.about
	if about != nil && wanted && a.process != nil && (!m.paused || m.process == nil) {
		m.process = a.process
	}
	switch {
	case !wanted && about != nil:
		return m.refresh()
	case m.paused:
		return nil
	}
	m.tick++
	n := m.tick
	return tea.Tick(m.opts.Interval, func(time.Time) tea.Msg { return dueMsg(n) })
}

func (m *Model) page() *page { return &m.pages[len(m.pages)-1] }

// settle makes the rows of the page, and keeps the cursor on its row.
func (m *Model) settle() {
	m.rows = m.filtered()
	p := m.page()
	if p.key == "" {
		p.cursor = 0
	} else if i := slices.IndexFunc(m.rows, func(r row) bool { return r.key == p.key }); i >= 0 {
		p.cursor = i
	}
	p.cursor = max(0, min(p.cursor, len(m.rows)-1))
	body := m.body()
	p.top = max(0, min(p.top, p.cursor, len(m.rows)-body), p.cursor-body+1)
}

// filtered returns the rows of the page that have the text of the filter.
func (m *Model) filtered() (rows []row) {
	if m.overview == nil {
		return nil
	}
	switch p := m.page(); {
	case len(m.pages) == 1:
		sortProcesses(m.overview.Processes, m.order)
		for _, a := range m.overview.Processes {
			rows = append(rows, processRow(a))
		}
	case m.process == nil:
	case len(m.pages) == 2:
		for _, g := range groups(m.process, m.overview.Time) {
			rows = append(rows, groupRow(g))
		}
	default:
		for _, g := range groups(m.process, m.overview.Time) {
			for i := range g.list {
				if g.groupKey == p.group {
					rows = append(rows, allocationRow(&g.list[i]))
				}
			}
		}
	}
	want := strings.ToLower(m.page().filter)
	return slices.DeleteFunc(rows, func(r row) bool { return !strings.Contains(strings.ToLower(r.search), want) })
}
