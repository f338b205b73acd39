package plot

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var (
	update = flag.Bool("update", false, "write the goldens")
	look   = flag.String("look", "", "write each picture as PNG into this folder")
)

func TestPicturesMatchGoldens(t *testing.T) {
	for _, p := range pictures {
		t.Run(p.name, func(t *testing.T) {
			var got bytes.Buffer
			if err := p.chart().Write(&got, SVG, Size{800, 400}); err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", p.name+".svg")
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Errorf("%s differs; look at the new picture, then run the test with -update", golden)
			}
		})
	}
}

// TestLook writes pictures for a person to look at: go test -run TestLook -look FOLDER.
func TestLook(t *testing.T) {
	if *look == "" {
		t.Skip("no folder")
	}
	for _, p := range pictures {
		small := Size{800, 400}
		for suffix, size := range map[string]Size{"-800.png": small, "-1200.png": DefaultSize, ".svg": small} {
			if err := p.chart().WriteFile(filepath.Join(*look, p.name+suffix), size); err != nil {
				t.Fatal(err)
			}
		}
	}
}
