package procfs

import "testing"

func TestStartTicks(t *testing.T) {
	const behind = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21\n"
	for stat, want := range map[string]uint64{
		"12 (python3)" + behind: 4711, "12 (a) S 9 (b)" + behind: 4711, "": 0, "12 (x) S 1 2": 0,
	} {
		if got := StartTicks(stat); got != want {
			t.Errorf("%q: got %d, want %d", stat, got, want)
		}
	}
}
