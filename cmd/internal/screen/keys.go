package screen

import (
	tea "charm.land/bubbletea/v2"
)

const helpText = `  up, down, PgUp, PgDn, home, end   move
  enter   open: a process, then its groups of allocations, then their addresses
  esc     clear the filter, or go back
  /       show only rows with a text; enter keeps it, esc clears it
  < >     sort by the previous or next order; s is the same as >
  space   pause, or go on
  r       ask now
  ? q     this page; quit

  STATE      suspect, growing: memory grows without end; ",late": it ran before
             gputap did; ",gap": events of it were lost
  LIVE       GPU memory that is allocated; PEAK: the most there was at once
  GROWTH/H   bytes per hour, of suspect and growing processes
  LAUNCH/S   launches per second in the last minute
  WAIT %     part of its life in calls that wait for the GPU; threads add up
  COPIED     bytes of all copies so far; UNFREED: live when the process ended
  -          unknown: no consumer for it runs
  198 of 200 hosts: 2 were silent for 30 s
`

// press handles a key.
func (m *Model) press(msg tea.KeyPressMsg) tea.Cmd {
	key := msg.String()
	switch {
	case key == "ctrl+c":
		return tea.Quit
	case key == "ctrl+z":
		return tea.Suspend
	case m.typing:
		m.typeKey(key, msg.Text)
		return nil
	case m.help:
		m.help = false
		return nil
	}
	switch key {
	case "q":
		return tea.Quit
	case "?":
		m.help = true
	case "/":
		m.typing = true
	case "space":
		if m.paused = !m.paused; !m.paused {
			return m.refresh()
		}
	case "r":
		return m.refresh()
	case ">", "s":
		m.sort(1)
	case "<":
		m.sort(-1)
	case "enter":
		return m.open()
	case "esc":
		m.back()
	default:
		m.move(key)
	}
	return nil
}

// typeKey handles a key while a filter is typed.
func (m *Model) typeKey(key, text string) {
	switch key {
	case "enter":
		m.typing = false
	case "esc":
		m.typing, m.page().filter = false, ""
	case "backspace":
		if r := []rune(m.page().filter); len(r) > 0 {
			m.page().filter = string(r[:len(r)-1])
		}
	default:
		m.write(text)
	}
}

// write adds text to the filter.
func (m *Model) write(text string) {
	if m.typing {
		m.page().filter += text
	}
}

func (m *Model) sort(by int) {
	if len(m.pages) == 1 {
		m.order = (m.order + by + len(orders)) % len(orders)
	}
}

// move moves the cursor. The key home also makes the cursor stay in the first row after the next answer.
func (m *Model) move(key string) {
	p := m.page()
	to := p.cursor
	switch key {
	case "up", "k":
		to--
	case "down", "j":
		to++
	case "pgup":
		to -= m.body()
	case "pgdown":
		to += m.body()
	case "end":
		to = len(m.rows) - 1
	case "home":
		p.key, p.cursor, p.top = "", 0, 0
		return
	default:
		return
	}
	if to = max(0, min(to, len(m.rows)-1)); len(m.rows) > 0 {
		p.cursor, p.key = to, m.rows[to].key
	}
}

// open opens the row under the cursor.
func (m *Model) open() tea.Cmd {
	if len(m.rows) == 0 || len(m.pages) == 3 {
		return nil
	}
	p := m.page()
	p.key = m.rows[p.cursor].key
	if len(m.pages) == 2 {
		for _, g := range groups(m.process, m.overview.Time) {
			if g.String() == p.key {
				m.pages = append(m.pages, page{subject: p.subject, group: g.groupKey})
			}
		}
		return nil
	}
	for _, a := range m.overview.Processes {
		if s := subjectOf(a.Process); s.key() == p.key {
			m.process = nil
			m.pages = append(m.pages, page{subject: s})
			return m.refresh()
		}
	}
	return nil
}

// back clears the filter of the page, else closes the page.
func (m *Model) back() {
	switch p := m.page(); {
	case p.filter != "":
		p.filter = ""
	case len(m.pages) > 1:
		m.pages = m.pages[:len(m.pages)-1]
	}
	if len(m.pages) == 1 {
		m.process = nil
	}
}
