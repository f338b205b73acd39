package plot

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func TestFormat(t *testing.T) {
	for _, test := range []struct {
		unit  Unit
		value float64
		want  string
	}{
		{Bytes, 0, "0 B"}, {Bytes, 1023, "1023 B"}, {Bytes, 1024, "1 KiB"}, {Bytes, 1024*1024 - 1, "1 MiB"},
		{Bytes, 11.4 * gib, "11.4 GiB"}, {Bytes, -1.5 * gib, "-1.5 GiB"}, {Bytes, 1 << 60, "1024 PiB"},
		{BytesPerSecond, 25.314e9, "25.31 GB/s"}, {BytesPerSecond, 999999, "1 MB/s"}, {BytesPerSecond, 12, "12 B/s"},
		{Count, 12, "12"}, {Count, 1234567, "1.23M"}, {Count, 1e15, "1P"},
	} {
		if got := test.unit.Format(test.value); got != test.want {
			t.Errorf("%g: got %q, want %q", test.value, got, test.want)
		}
	}
}

func TestValueAxis(t *testing.T) {
	for _, test := range []struct {
		name      string
		unit      Unit
		low, high float64
		title     string
		labels    string
	}{
		{"half a GiB apart", Bytes, 0, 3.3 * gib, "Memory (GiB)", "0 0.5 1.0 1.5 2.0 2.5 3.0"},
		{"128 MiB apart", Bytes, 0, 0.9 * gib, "Memory (MiB)", "0 128 256 384 512 640 768 896"},
		{"more than a thousand", Bytes, 0, 1023 * mib, "Memory (MiB)", "0 128 256 384 512 640 768 896"},
		{"80 GiB", Bytes, 0, 80 * gib, "Memory (GiB)", "0 16 32 48 64 80"},
		{"bytes", Bytes, 0, 3, "Memory (B)", "0 1 2 3"},
		{"below zero", Bytes, -600 * mib, 500 * mib, "Memory (MiB)", "-512 -384 -256 -128 0 128 256 384"},
		{"rate", BytesPerSecond, 0, 27e9, "Memory (GB/s)", "0 5 10 15 20 25"},
		{"slow rate", BytesPerSecond, 0, 0.5, "Memory (B/s)", "0 0.1 0.2 0.3 0.4 0.5"},
		{"count", Count, 0, 3, "Memory", "0 1 2 3"},
		{"thousands", Count, 0, 35e3, "Memory", "0 5k 10k 15k 20k 25k 30k 35k"},
		{"millions", Count, 0, 1.4e6, "Memory", "0 0.2M 0.4M 0.6M 0.8M 1.0M 1.2M 1.4M"},
	} {
		t.Run(test.name, func(t *testing.T) {
			axis := newValueAxis(test.unit, test.low, test.high, 9)
			var labels []string
			for _, v := range axis.ticks() {
				labels = append(labels, axis.label(v))
			}
			if got := strings.Join(labels, " "); got != test.labels || axis.title("Memory") != test.title {
				t.Errorf("got %q of %q", got, axis.title("Memory"))
			}
		})
	}
}

func TestTicksOfEveryRange(t *testing.T) {
	for _, unit := range []Unit{Bytes, BytesPerSecond, Count} {
		for high := 1e-3; high < 1e18; high *= 1.37 {
			axis := newValueAxis(unit, 0, high, 8)
			ticks := axis.ticks()
			var labels []string
			for _, v := range ticks {
				labels = append(labels, axis.label(v))
			}
			distinct := len(slices.Compact(slices.Clone(labels))) == len(labels)
			if len(ticks) > 9 || high >= 2 && len(ticks) < 3 || !distinct {
				t.Errorf("unit %d up to %g: %q", unit, high, labels)
			}
			if m, _ := math.Frexp(axis.step); unit == Bytes && m != 0.5 {
				t.Errorf("step %g is no power of two", axis.step)
			}
		}
	}
}
