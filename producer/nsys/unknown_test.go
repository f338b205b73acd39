package nsys_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gputap/gputap/producer/nsys"
)

// memoryRow is a memory event of 100 bytes.
func memoryRow(at, kind, op int) string {
	return fmt.Sprintf("INSERT INTO %s (start, globalPid, deviceId, contextId, address, pc, bytes, memKind, "+
		"memoryOperationType) VALUES (%d, 4242 << 24, 0, 1, %d, 0, 100, %d, %d);", memoryEvents, at, 4096*at, kind, op)
}

// TestUnknownNumbers: an export without enumerations has numbers of a later version. A kind that frees counts no bytes,
// and a bounded number of kinds is named.
func TestUnknownNumbers(t *testing.T) {
	t.Parallel()
	var rows strings.Builder
	for i := range 20 {
		rows.WriteString(memoryRow(1+i, 50+i, 0))
	}
	rows.WriteString(memoryRow(21, 51, 0) + memoryRow(22, 51, 1) + memoryRow(23, 2, 9) + memoryRow(24, 0, 0))
	_, s, err := convert(t, database(t, strings.Join(releases[0].tables, "\n")+rows.String()), nsys.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if s.NoKinds != "ENUM_CUDA_MEM_KIND" || s.NoOps != "ENUM_CUDA_DEV_MEM_EVENT_OPER" || s.UnknownOps != 1 ||
		s.Malformed != 1 {
		t.Errorf("no table %q and %q, %d unknown operations, %d malformed", s.NoKinds, s.NoOps, s.UnknownOps,
			s.Malformed)
	}
	want := []nsys.Unknown{{Kind: "50", Events: 1, Allocated: 100}, {Kind: "51", Events: 3, Allocated: 200}}
	for i := 52; i < 58; i++ {
		want = append(want, nsys.Unknown{Kind: fmt.Sprint(i), Events: 1, Allocated: 100})
	}
	want = append(want, nsys.Unknown{Kind: "and others", Events: 12, Allocated: 1200})
	if !slices.Equal(s.UnknownKinds, want) {
		t.Errorf("unknown kinds %+v, want %+v", s.UnknownKinds, want)
	}
}
