package screen

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/gputap/gputap/cmd/internal/answer"
	"github.com/gputap/gputap/cmd/internal/report"
)

// TestErrorKeepsTheLastAnswer: the first answer stays, with its age, while later questions fail, and goes away with the
// next answer.
func TestErrorKeepsTheLastAnswer(t *testing.T) {
	t.Parallel()
	m := New(t.Context(), fleet(3), options(Marks))
	at := now
	m.opts.Now = func() time.Time { return at }
	m.Update(m.ask(nil))
	at = now.Add(70 * time.Second)
	m.Update(answered{err: errBus})
	if text := strings.Join(m.lines(), "\n"); !strings.Contains(text, "72s ago") || !strings.Contains(text, "worker") ||
		!strings.Contains(text, "cannot refresh: "+errBus.Error()) {
		t.Errorf("after an error the screen is\n%s", text)
	}
	empty := overview(0)
	empty.Answered, empty.Missing, empty.Hosts, empty.Processes = 0, []int{0, 1}, 0, nil
	silent := &fixed{overview: func(context.Context) (*answer.Overview, error) { return empty, nil }}
	m.Update(question(t.Context(), silent, nil))
	if text := strings.Join(m.lines(), "\n"); !strings.Contains(text, "worker") ||
		!strings.Contains(text, "0 of 16 shards answered; missing: 0, 1") {
		t.Errorf("without any shard the screen is\n%s", text)
	}
	m.Update(m.ask(nil))
	if text := strings.Join(m.lines(), "\n"); strings.Contains(text, "cannot refresh") {
		t.Errorf("after an answer the screen is\n%s", text)
	}
}

func press(m *Model, keys ...rune) (last tea.Cmd) {
	for _, k := range keys {
		key := tea.Key{Code: k}
		if k > ' ' && k < 0x7f {
			key.Text = string(k)
		}
		_, last = m.Update(tea.KeyPressMsg(key))
	}
	return last
}

// TestPauseStopsQuestions: a paused screen asks nothing and keeps its answer, except for a process that is opened.
func TestPauseStopsQuestions(t *testing.T) {
	t.Parallel()
	m := New(t.Context(), fleet(3), options(Marks))
	m.Update(m.ask(nil))
	if _, next := m.Update(dueMsg(m.tick - 1)); next != nil {
		t.Error("an old timer asks a question")
	}
	if _, next := m.Update(dueMsg(m.tick)); next == nil {
		t.Error("a timer asks no question")
	}
	press(m, tea.KeySpace)
	newer := question(t.Context(), fleet(30), nil)
	m.Update(newer)
	if _, next := m.Update(dueMsg(m.tick)); next != nil || m.overview == newer.overview {
		t.Error("a paused screen goes on")
	}
	if text := strings.Join(m.lines(), "\n"); !strings.Contains(text, "PAUSED") {
		t.Errorf("the screen does not say that it is paused\n%s", text)
	}
	next := press(m, tea.KeyEnter)
	if next == nil {
		t.Fatal("a paused screen does not ask for a process")
	}
	m.Update(next())
	if m.process == nil || m.process.PID != 4021337 || len(m.overview.Processes) != 7 {
		t.Errorf("the process is %+v", m.process)
	}
	if press(m, tea.KeySpace) == nil || m.paused {
		t.Error("the screen does not go on")
	}
}

// TestCursorStaysOnItsProcess moves the cursor to a process that then becomes the smallest.
func TestCursorStaysOnItsProcess(t *testing.T) {
	t.Parallel()
	m := New(t.Context(), fleet(30), options(Marks))
	m.width, m.height = 160, 12
	m.Update(m.ask(nil))
	press(m, tea.KeyDown, tea.KeyDown, tea.KeyDown)
	under := func() string { return lineWith(strings.Join(m.lines(), "\n"), ">") }
	if !strings.Contains(under(), " 1000 ") {
		t.Fatalf("the cursor is on %s", under())
	}
	changed := overview(30)
	for _, a := range changed.Processes {
		if a.PID == 1000 {
			a.LiveBytes = 1
		}
	}
	m.Update(answered{overview: changed})
	if !strings.Contains(under(), " 1000 ") || m.page().cursor != 32 {
		t.Errorf("the cursor is on row %d: %s", m.page().cursor, under())
	}
	changed.Processes = slices.DeleteFunc(changed.Processes, func(a *answer.Activity) bool { return a.PID == 1000 })
	m.Update(answered{overview: changed})
	if under() == "" {
		t.Error("no row is under the cursor after its process has gone")
	}
	press(m, tea.KeyHome)
	m.Update(answered{overview: overview(30)})
	if !strings.Contains(under(), "suspect") {
		t.Errorf("after home the cursor is on %s", under())
	}
}

func TestProcessThatIsGone(t *testing.T) {
	t.Parallel()
	source := fleet(3)
	source.process = func(context.Context, Subject) (*report.Process, error) { return nil, nil }
	m := New(t.Context(), source, options(Marks))
	m.Update(m.ask(nil))
	m.Update(press(m, tea.KeyEnter)())
	if text := strings.Join(m.lines(), "\n"); !strings.Contains(text,
		"no consumer knows process gpu-17/4021337 any more") {
		t.Errorf("the screen is\n%s", text)
	}
	press(m, tea.KeyEnter, tea.KeyDown, tea.KeyEsc)
	if text := strings.Join(m.lines(), "\n"); !strings.Contains(text, "by live") {
		t.Errorf("after esc the screen is\n%s", text)
	}
}

func TestOnce(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	incomplete, err := Once(t.Context(), fleet(30), options(Plain), 80, 10, &out)
	if err != nil || incomplete == nil || !strings.HasPrefix(incomplete.Error(), "14 of 16 shards answered") {
		t.Errorf("ends with %v, %v", incomplete, err)
	}
	if strings.Contains(out.String(), "\x1b") || strings.Count(out.String(), "\n") != 10 ||
		!strings.Contains(out.String(), "\n suspect      gpu-17 ") {
		t.Errorf("prints\n%s", out.String())
	}
	failing := &fixed{overview: func(context.Context) (*answer.Overview, error) { return nil, errBus }}
	if _, err := Once(t.Context(), failing, options(Plain), 80, 24, &out); err == nil {
		t.Error("a failed question is no error")
	}
}
