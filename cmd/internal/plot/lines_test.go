package plot

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// processes returns a chart of lines: the i-th process reaches i GiB at i seconds, and ends a second later.
func processes(n int) Chart {
	c := Chart{Title: "GPU memory of each process", YLabel: "GPU memory", Length: time.Duration(n+5) * time.Second,
		Note: "3 events were lost"}
	for i := range n {
		from := time.Duration(i) * time.Second
		c.Series = append(c.Series, Series{
			Name: fmt.Sprintf("process %d", i), Step: true, Mark: fmt.Sprintf("peak %d", i),
			Points: Points([]Point{{from, float64(i+1) * gib / 2}, {from + time.Second/2, float64(i+1) * gib},
				{from + time.Second, 0}}),
		})
	}
	return c
}

// TestOnlyDrawnLinesHaveMarks: each line has one mark at its peak, and a process without a line has none.
func TestOnlyDrawnLinesHaveMarks(t *testing.T) {
	for _, n := range []int{1, 7, 9, 140} {
		s := newSheet(processes(n), nil, DefaultSize)
		if want := min(n, Limit); len(s.marks) != want || len(s.curves) != want {
			t.Fatalf("%d processes: %d marks, %d lines, want %d", n, len(s.marks), len(s.curves), want)
		}
		for i, m := range s.marks {
			number := n - len(s.marks) + i
			want := Mark{time.Duration(number)*time.Second + time.Second/2, float64(number+1) * gib,
				fmt.Sprintf("peak %d", number)}
			if m != want || s.curves[i].name != fmt.Sprintf("process %d", number) {
				t.Errorf("%d processes: mark %v of %q, want %v", n, m, s.curves[i].name, want)
			}
		}
	}
}

// TestLineEndsWithItsProcess: a line goes down to 0 and stops there, so that no line lies on the axis.
func TestLineEndsWithItsProcess(t *testing.T) {
	s := newSheet(processes(9), nil, DefaultSize)
	for _, c := range s.curves {
		path, end := s.path(c), s.place(c.points[len(c.points)-1])
		if last := path[len(path)-1]; last != end || end.Y != s.bottom {
			t.Errorf("%s goes on to %v after %v", c.name, last, end)
		}
		if _, known := c.at(s.to); known {
			t.Errorf("%s has a marker at the end of the axis", c.name)
		}
	}
}

func TestSentencesOfTheNoteAreSeparate(t *testing.T) {
	for note, want := range map[string]string{
		"3 events were lost":  "3 events were lost. The 7 of 9 lines with the largest peaks are drawn.",
		"3 events were lost.": "3 events were lost. The 7 of 9 lines with the largest peaks are drawn.",
		"":                    "The 7 of 9 lines with the largest peaks are drawn.",
	} {
		c := processes(9)
		c.Note = note
		if got := strings.Join(newSheet(c, nil, DefaultSize).noteLines(), " "); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
