package procfs

import (
	"errors"
	"io"
	"maps"
	"strings"
	"testing"
	"testing/iotest"
)

func TestVariables(t *testing.T) {
	names := map[string]bool{"RANK": true, "WORLD_SIZE": true, "EMPTY": true}
	long := strings.Repeat("x", 3*maxVariable)
	for _, row := range []struct {
		name, environ string
		want          map[string]string
	}{
		{"nothing", "", map[string]string{}},
		{"no match", "PATH=/bin\x00HOME=/\x00", map[string]string{}},
		{"two of three", "RANK=3\x00HOME=/\x00WORLD_SIZE=8\x00", map[string]string{"RANK": "3", "WORLD_SIZE": "8"}},
		{"an empty value", "EMPTY=\x00", map[string]string{"EMPTY": ""}},
		{"a value with =", "RANK=a=b\x00", map[string]string{"RANK": "a=b"}},
		{"the first of two", "RANK=1\x00RANK=2\x00", map[string]string{"RANK": "1"}},
		{"parts of names", "RAN=1\x00RANKS=2\x00LOCAL_RANK=3\x00rank=4\x00", map[string]string{}},
		{"no =", "RANK\x00\x00=\x00RANK=5\x00", map[string]string{"RANK": "5"}},
		{"a value that contains another", "X=RANK=7\x00", map[string]string{}},
		{"cut off", "WORLD_SIZE=8\x00RANK=12", map[string]string{"WORLD_SIZE": "8"}},
		{"behind a long variable", "X=" + long + "\x00RANK=1\x00", map[string]string{"RANK": "1"}},
		{"too long", "RANK=" + long + "\x00WORLD_SIZE=2\x00", map[string]string{"WORLD_SIZE": "2"}},
		{"the end of a long variable looks like one", "X=" + strings.Repeat("x", maxVariable-2) + "RANK=1\x00",
			map[string]string{}},
		{"within the limit", strings.Repeat("X=1\x00", maxEnvironment/4-2) + "RANK=1\x00",
			map[string]string{"RANK": "1"}},
		{"beyond the limit", strings.Repeat("X=1\x00", maxEnvironment/4-1) + "RANK=1\x00", map[string]string{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			for name, r := range map[string]io.Reader{
				"at once":      strings.NewReader(row.environ),
				"byte by byte": iotest.OneByteReader(strings.NewReader(row.environ)),
			} {
				if got, err := Variables(r, names); err != nil || !maps.Equal(got, row.want) {
					t.Errorf("%s: got %v, %v; want %v", name, got, err, row.want)
				}
			}
		})
	}
	gone := io.MultiReader(strings.NewReader("RANK=1\x00"), iotest.ErrReader(io.ErrClosedPipe))
	if got, err := Variables(gone, names); !errors.Is(err, io.ErrClosedPipe) || got != nil {
		t.Errorf("a process that ends meanwhile: %v, %v", got, err)
	}
}
