package library

import "testing"

func TestUnseen(t *testing.T) {
	t.Parallel()
	attached := Inode{1, 2}
	images := Images{
		{Start: 0x1000, End: 0x2000, offset: 0x100, Inode: attached},
		{Start: 0x5000, End: 0x6000, Inode: Inode{1, 3}},
	}
	lookup := func(file Inode, offset uint64) (symbol string, probed, known bool) {
		switch {
		case file != attached:
			return "", false, false
		case offset == 0x110:
			return "cuMemAlloc_v2", true, true
		case offset == 0x120:
			return "cuMemNew", false, true
		}
		return "", false, true
	}
	for _, tt := range []struct {
		name, asked string
		address     uint64
		want        string
	}{
		{"a probed function", "cuMemAlloc", 0x1010, ""},
		{"a function without a probe", "cuMemNew", 0x1020, "cuMemNew"},
		{"a function that is not exported", "cuMemHidden", 0x1030, "cuMemHidden (not exported)"},
		{"a function outside of the driver", "cuLaunchX", 0x3000, "cuLaunchX (outside the driver)"},
		{"a library that is not attached", "cuMemAlloc", 0x5000, ""},
		{"a query", "cuMemGetInfo", 0x1030, ""},
		{"a function that is not there", "cuMemNew", 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := images.Unseen(tt.asked, tt.address, lookup); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
