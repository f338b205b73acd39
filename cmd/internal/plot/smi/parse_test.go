package smi

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

const mib = 1 << 20

var zone = time.FixedZone("CET", 3600)

// at returns a time of the evening in which the test logs begin.
func at(second, millisecond int) time.Time {
	return time.Date(2026, 11, 24, 19, 0, second, millisecond*1e6, zone)
}

func TestParseReadsRows(t *testing.T) {
	for _, test := range []struct {
		name, log string
		want      []GPU
	}{
		{"header and units", `timestamp, index, uuid, name, memory.used [MiB], utilization.gpu [%]
2026/11/24 19:00:01.123, 0, GPU-a, NVIDIA H100 80GB HBM3, 1024 MiB, 7 %
2026/11/24 19:00:01.125, 1, GPU-b, NVIDIA H100 80GB HBM3, 3 MiB, 0 %
2026/11/24 19:00:01.223, 0, GPU-a, NVIDIA H100 80GB HBM3, 2048 MiB, 100 %
`, []GPU{
			{"GPU-a", 0, "NVIDIA H100 80GB HBM3", []Sample{
				{0, 1024 * mib, 7}, {100 * time.Millisecond, 2048 * mib, 100}}},
			{"GPU-b", 1, "NVIDIA H100 80GB HBM3", []Sample{{2 * time.Millisecond, 3 * mib, 0}}},
		}},
		{"nounits, another order", "memory.used [MiB], gpu_uuid, timestamp\n5, GPU-a, 2026/11/24 19:00:01.123\n",
			[]GPU{{"GPU-a", -1, "", []Sample{{0, 5 * mib, -1}}}}},
		{"noheader", "2026/11/24 19:00:01.123, 0, GPU-a, NVIDIA L4, 5 MiB, 7 %",
			[]GPU{{"GPU-a", 0, "NVIDIA L4", []Sample{{0, 5 * mib, 7}}}}},
		{"noheader, nounits", "2026/11/24 19:00:01.123, 0, GPU-a, NVIDIA L4, 5, 7",
			[]GPU{{"GPU-a", 0, "NVIDIA L4", []Sample{{0, 5 * mib, 7}}}}},
		{"noheader, another order", "7 %, 5 MiB, NVIDIA L4, 2, 2026/11/24 19:00:01.123",
			[]GPU{{"", 2, "NVIDIA L4", []Sample{{0, 5 * mib, 7}}}}},
		{"two columns", "2026/11/24 19:00:01.123, 5\n2026/11/24 19:00:01.133, 6\n",
			[]GPU{{"", -1, "", []Sample{{0, 5 * mib, -1}, {10 * time.Millisecond, 6 * mib, -1}}}}},
		{"without times", "memory.used [MiB]\n5 MiB\n6 MiB\n",
			[]GPU{{"", -1, "", []Sample{{0, 5 * mib, -1}, {100 * time.Millisecond, 6 * mib, -1}}}}},
		{"Windows", "\ufefftimestamp, memory.used [MiB]\r\n2026/11/24 19:00:01.123, 5 MiB\r\n",
			[]GPU{{"", -1, "", []Sample{{0, 5 * mib, -1}}}}},
		{"unknown utilization", "index, memory.used [MiB], utilization.gpu [%]\n0, 5 MiB, [N/A]\n",
			[]GPU{{"", 0, "", []Sample{{0, 5 * mib, -1}}}}},
		{"equal rows", "memory.used [MiB]\n5\n5\n5\n5\n6\n",
			[]GPU{{"", -1, "", []Sample{{0, 5 * mib, -1}, {300 * time.Millisecond, 5 * mib, -1},
				{400 * time.Millisecond, 6 * mib, -1}}}}},
		{"second header", "index, memory.used [MiB]\n0, 5 MiB\nmemory.used [MiB], index\n6 MiB, 0\n",
			[]GPU{{"", 0, "", []Sample{{0, 5 * mib, -1}, {100 * time.Millisecond, 6 * mib, -1}}}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Parse(strings.NewReader(test.log), Options{zone, 100 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			equal := func(a, b GPU) bool {
				return a.UUID == b.UUID && a.Index == b.Index && a.Name == b.Name && slices.Equal(a.Samples, b.Samples)
			}
			if !slices.EqualFunc(got.GPUs, test.want, equal) || len(got.Problems()) > 0 {
				t.Errorf("got %+v, problems %q; want %+v", got.GPUs, got.Problems(), test.want)
			}
			want := at(1, 123)
			if !strings.Contains(test.log, "2026") {
				want = time.Time{}
			}
			if !got.Start.Equal(want) {
				t.Errorf("start %v", got.Start)
			}
		})
	}
}

func TestParseCountsWhatItCannotRead(t *testing.T) {
	const header = "timestamp, index, memory.used [MiB]\n"
	const good = "2026/11/24 19:00:01.123, 0, 5 MiB\n"
	for _, test := range []struct{ name, rows, first string }{
		{"lost GPU", "2026/11/24 19:00:02.123, 0, [GPU is lost]\n", `line 3: "[GPU is lost]" is no memory in MiB`},
		{"negative", "2026/11/24 19:00:02.123, 0, -5 MiB\n", `line 3: "-5 MiB" is no memory in MiB`},
		{"overflow", "2026/11/24 19:00:02.123, 0, 99999999999999 MiB\n", `is no memory in MiB`},
		{"another unit", "2026/11/24 19:00:02.123, 0, 5 GiB\n", `is no memory in MiB`},
		{"cut off", "2026/11/24 19:00", `line 3: 1 columns instead of 3`},
		{"time", "yesterday, 0, 5 MiB\n", `line 3: "yesterday" is no time such as 2026/11/24 19:00:01.123`},
		{"index", "2026/11/24 19:00:02.123, ?, 5 MiB\n", `line 3: "?" is no index of a GPU`},
		{"zero bytes", strings.Repeat("\x00", 300) + "\n", `line 3: 1 columns instead of 3`},
		{"long line", strings.Repeat("x, ", 1<<20) + "\n", `line 3: too long`},
		{"message", "Unable to determine the device handle for GPU0: Unknown Error\n", `line 3: 1 columns`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Parse(strings.NewReader(header+good+test.rows), Options{Location: zone})
			if err != nil || len(got.GPUs) != 1 || len(got.GPUs[0].Samples) != 1 {
				t.Fatalf("got %+v, %v", got, err)
			}
			if got.Skipped != 1 || !strings.Contains(got.FirstSkipped, test.first) {
				t.Errorf("skipped %d: %s", got.Skipped, got.FirstSkipped)
			}
		})
	}
}

func TestParseReportsOrderAndMixedGPUs(t *testing.T) {
	got, err := Parse(strings.NewReader("2026/11/24 19:00:01.123, 5\n2026/11/24 19:00:01.123, 6\n"+
		"2026/11/24 19:00:01.023, 7\n"), Options{Location: zone})
	if err != nil || got.Ambiguous != 1 || got.Backward != 1 || len(got.Problems()) != 2 {
		t.Errorf("got %+v, %q, %v", got, got.Problems(), err)
	}
}

func TestParseFailsWithoutRows(t *testing.T) {
	for _, test := range []struct{ name, log, want string }{
		{"empty", "", "it has no rows"},
		{"header alone", "timestamp, memory.used [MiB]\n", "it has no rows"},
		{"another file", "{\n\"a\": 1\n}\n", "none of 3 rows can be read; the first one is line 1: it holds no memory"},
		{"names and numbers", "apples, 5\npears, 6\n", "it has neither a time nor a memory in MiB"},
		{"ambiguous", "2026/11/24 19:00:01.123, 5, 7\n", "leave out noheader, or nounits"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Parse(strings.NewReader(test.log), Options{})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v", err)
			}
		})
	}
	broken := errors.New("broken")
	_, err := Parse(io.MultiReader(strings.NewReader("5 MiB\n"), iotest.ErrReader(broken)), Options{})
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

// In Berlin, clocks went from 03:00 back to 02:00 on 2026-10-25.
func TestRepeatedHourGoesForward(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip(err)
	}
	const log = "2026/10/25 02:10:00.000, 1\n2026/10/25 02:50:00.000, 2\n" +
		"2026/10/25 02:10:00.000, 3\n2026/10/25 02:50:00.000, 4\n2026/10/25 03:10:00.000, 5\n"
	got, err := Parse(strings.NewReader(log), Options{Location: berlin})
	if err != nil {
		t.Fatal(err)
	}
	var minutes []float64
	for _, s := range got.GPUs[0].Samples {
		minutes = append(minutes, s.At.Minutes())
	}
	if want := []float64{0, 40, 60, 100, 120}; !slices.Equal(minutes, want) || !got.Start.Equal(
		time.Date(2026, 10, 25, 0, 10, 0, 0, time.UTC)) {
		t.Errorf("start %v, minutes %v", got.Start, minutes)
	}
}

func TestAlign(t *testing.T) {
	walled := Log{Start: at(10, 0), GPUs: []GPU{{Index: 3, Samples: []Sample{{time.Second, 5, -1}}}}}
	timeless := Log{GPUs: walled.GPUs}
	for _, test := range []struct {
		name   string
		log    Log
		begin  time.Time
		offset time.Duration
		want   time.Duration
	}{
		{"both know the wall clock", walled, at(4, 0), 0, 7 * time.Second},
		{"an offset", walled, at(4, 0), -2 * time.Second, 5 * time.Second},
		{"the chart has no wall clock", walled, time.Time{}, 0, time.Second},
		{"the log has no times", timeless, at(4, 0), 3 * time.Second, 4 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			series := test.log.Align(test.begin, test.offset)
			for p := range series[0].Points {
				if p.At != test.want || p.Value != 5 || series[0].Name != "nvidia-smi GPU 3" {
					t.Errorf("got %+v of %q", p, series[0].Name)
				}
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add("timestamp, index, memory.used [MiB]\n2026/11/24 19:00:01.123, 0, 5 MiB\n")
	f.Add("2026/11/24 19:00:01.123, 5\n0001/01/01 00:00:00, 6\n9999/12/31 23:59:59, 7\n")
	f.Add("5 MiB, GPU-a, 7 %, x, 3\n,,,,\n\x00\xff")
	f.Fuzz(func(t *testing.T, log string) {
		got, err := Parse(strings.NewReader(log), Options{Location: zone})
		if (err == nil) != (len(got.GPUs) > 0) {
			t.Fatalf("%d GPUs, error %v", len(got.GPUs), err)
		}
		for _, g := range got.GPUs {
			if !slices.IsSortedFunc(g.Samples, func(a, b Sample) int { return int(a.At/2 - b.At/2) }) {
				t.Errorf("not in the order of time: %v", g.Samples)
			}
			for _, s := range g.Samples {
				if s.Used < 0 || s.Utilization < -1 || s.Utilization > 127 {
					t.Errorf("sample %+v", s)
				}
			}
		}
	})
}

func BenchmarkParse(b *testing.B) {
	log := strings.Repeat("2026/11/24 19:00:01.123, 0, GPU-5f1c4e2a, NVIDIA H100 80GB HBM3, 1024 MiB, 7 %\n", 10000)
	b.SetBytes(int64(len(log)))
	for b.Loop() {
		if _, err := Parse(strings.NewReader(log), Options{Location: zone}); err != nil {
			b.Fatal(err)
		}
	}
}
