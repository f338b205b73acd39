package nsys_test

import (
	"database/sql"
	"testing"

	"github.com/gputap/gputap/producer/nsys"
)

// TestGPUWithoutMappingOfItsProcessHasNoUUID removes mappings of devices. Those of other processes say nothing: their
// CUDA_VISIBLE_DEVICES may be another.
func TestGPUWithoutMappingOfItsProcessHasNoUUID(t *testing.T) {
	t.Parallel()
	for statement, mapped := range map[string]map[uint32]bool{
		"DELETE FROM TARGET_INFO_CUDA_DEVICE WHERE pid <> 4242": {4242: true},
		"UPDATE TARGET_INFO_CUDA_DEVICE SET pid = NULL":         {},
		"DELETE FROM TARGET_INFO_CUDA_DEVICE":                   {},
	} {
		x := generate(t, releases[1], plan{seed: 3, events: 1000, live: 50})
		path := file(t, read(t, x.path))
		db, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = db.Exec(statement + "; UPDATE TARGET_INFO_GPU SET cuDevice = id")
		if closed := db.Close(); err != nil || closed != nil {
			t.Fatal(err, closed)
		}
		out, _, err := convert(t, path, nsys.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range folded(t, out).Report().Processes {
			for _, g := range p.GPUs {
				want := ""
				if mapped[p.ID.PID] {
					want = x.uuid(use{p.ID.PID, uint32(g.Ordinal)})
				}
				if g.UUID != want {
					t.Errorf("%s: device %d of %d is %q, want %q", statement, g.Ordinal, p.ID.PID, g.UUID, want)
				}
			}
		}
	}
}
