package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image"
	"image/color"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestExtensionChoosesTheForm(t *testing.T) {
	for _, test := range []struct{ path, want, problem string }{
		{"a.png", "\x89PNG", ""}, {"a.SVG", "<svg", ""}, {"a.b.svg", "<svg", ""},
		{"a.pdf", "", `chart file "a.pdf": cannot draw ".pdf"; use .png or .svg`},
		{"a", "", `chart file "a" has no extension; use .png or .svg`},
	} {
		t.Run(test.path, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), test.path)
			err := Chart{}.WriteFile(path, DefaultSize)
			got, _ := os.ReadFile(path)
			if _, nameErr := FormatOf(test.path); (nameErr == nil) != (err == nil) {
				t.Fatal(nameErr)
			} else if err != nil {
				if nameErr.Error() != test.problem || got != nil {
					t.Errorf("got %v", nameErr)
				}
			} else if !bytes.HasPrefix(got, []byte(test.want)) {
				t.Errorf("got %.20q", got)
			}
		})
	}
}

func TestSizeHasLimits(t *testing.T) {
	for size, good := range map[Size]bool{
		{320, 200}: true, {319, 200}: false, {320, 199}: false, {-1, 600}: false, {0, 0}: false, {8000, 8000}: true,
		{1 << 40, 600}: false, {9000, 9000}: false,
	} {
		if err := size.Validate(); (err == nil) != good {
			t.Errorf("%v: %v", size, err)
		}
	}
}

// render returns the pixels of a chart.
func render(t *testing.T, c Chart, s Size) image.Image {
	t.Helper()
	var picture bytes.Buffer
	if err := c.Write(&picture, PNG, s); err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(&picture)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// count returns the number of pixels of a color.
func count(img image.Image, c color.RGBA) (n int) {
	for y := range img.Bounds().Dy() {
		for x := range img.Bounds().Dx() {
			if img.At(x, y) == color.Color(c) {
				n++
			}
		}
	}
	return n
}

// A peak of one nanosecond among a million points is as high in the picture as one of an hour.
func TestPeakOfANanosecondReachesTheTop(t *testing.T) {
	for _, stacked := range []bool{false, true} {
		points := func(yield func(Point) bool) {
			for i := range 1_000_000 {
				at, value := time.Duration(i)*time.Second, 1.0*gib
				if i == 777_777 && (!yield(Point{at - 2, 8 * gib}) || !yield(Point{at - 1, value})) {
					return
				}
				if !yield(Point{at, value}) {
					return
				}
			}
		}
		c := Chart{Stacked: stacked, Series: []Series{{Points: points, Step: true}}}
		img := render(t, c, Size{800, 400})
		s := newSheet(c, nil, Size{800, 400})
		peak := s.place(Point{777_777 * time.Second, 7.5 * gib})
		found := false
		for x := int(peak.X) - 3; x <= int(peak.X)+3; x++ {
			found = found || img.At(x, int(peak.Y)) == color.Color(blue)
		}
		if !found {
			t.Errorf("stacked %v: no blue pixel at %v", stacked, peak)
		}
	}
}

func TestPicturesHoldTheirColors(t *testing.T) {
	img := render(t, stackedPicture(), Size{800, 400})
	if n := count(img, blue); n < 40_000 {
		t.Errorf("%d blue pixels", n)
	}
	if n := count(img, orange); n < 5_000 {
		t.Errorf("%d orange pixels", n)
	}
	if n := count(render(t, Chart{}, Size{800, 400}), blue); n != 0 {
		t.Errorf("%d blue pixels without data", n)
	}
}

func TestEqualChartsGiveEqualBytes(t *testing.T) {
	for _, format := range []Format{PNG, SVG} {
		var first, second bytes.Buffer
		for _, w := range []io.Writer{&first, &second} {
			if err := overlayPicture().Write(w, format, DefaultSize); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Errorf("form %d differs", format)
		}
	}
}

// Each picture can be drawn at any size, and is well-formed XML.
func TestPicturesOfEverySize(t *testing.T) {
	for _, p := range pictures {
		for _, size := range []Size{{320, 200}, {320, 2000}, {4000, 200}, {2400, 1200}} {
			var picture bytes.Buffer
			if err := p.chart().Write(&picture, SVG, size); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(picture.String(), "NaN") || strings.Contains(picture.String(), "Inf") {
				t.Errorf("%s %v: a coordinate is no number", p.name, size)
			}
			decoder := xml.NewDecoder(&picture)
			for {
				_, err := decoder.Token()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatalf("%s %v: %v", p.name, size, err)
				}
			}
		}
		render(t, p.chart(), Size{leastWidth, leastHeight})
	}
}

// BenchmarkTenMillionPoints draws one step line. Most of the time is the generator's and the reducer's.
func BenchmarkTenMillionPoints(b *testing.B) {
	points := func(yield func(Point) bool) {
		value := uint64(1)
		for i := range 10_000_000 {
			value = value*6364136223846793005 + 1442695040888963407
			if !yield(Point{time.Duration(i) * time.Microsecond, float64(value >> 30)}) {
				return
			}
		}
	}
	for _, stacked := range []bool{false, true} {
		b.Run(map[bool]string{false: "line", true: "stack"}[stacked], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c := Chart{Stacked: stacked, Series: []Series{{Name: "a", Points: points, Step: true}}}
				if err := c.Write(io.Discard, PNG, DefaultSize); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestFailedPointsGiveNoFile: a line whose points end early is not drawn as if it were whole.
func TestFailedPointsGiveNoFile(t *testing.T) {
	var failed error
	points := func(yield func(Point) bool) {
		yield(Point{0, 1})
		failed = io.ErrUnexpectedEOF
	}
	c := Chart{Series: []Series{{Points: points}}, Failed: func() error { return failed }}
	path := filepath.Join(t.TempDir(), "chart.png")
	if err := c.WriteFile(path, DefaultSize); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// TestPictureReplacesAFileAtOnce: a reader of the file that is replaced, here through a second name, keeps the whole.
func TestPictureReplacesAFileAtOnce(t *testing.T) {
	dir := t.TempDir()
	path, second, link := filepath.Join(dir, "x.png"), filepath.Join(dir, "y.png"), filepath.Join(dir, "z.png")
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(os.WriteFile(path, []byte("before"), 0o644))
	check(os.Link(path, second))
	check(os.Symlink("x.png", link))
	check(Chart{Title: "t"}.WriteFile(link, DefaultSize))
	before, err := os.ReadFile(second)
	check(err)
	after, err := os.ReadFile(path)
	check(err)
	info, err := os.Lstat(link)
	check(err)
	left, err := os.ReadDir(dir)
	check(err)
	if string(before) != "before" || !bytes.HasPrefix(after, []byte("\x89PNG")) || info.Mode().IsRegular() ||
		len(left) != 3 {
		t.Errorf("%q, %.4q, %s, %d files", before, after, info.Mode(), len(left))
	}
	check(os.Mkdir(filepath.Join(dir, "d.png"), 0o755))
	if err := (Chart{}).WriteFile(filepath.Join(dir, "d.png"), DefaultSize); err == nil {
		t.Error("a directory is replaced")
	}
}
