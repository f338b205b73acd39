package plot

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/gputap/gputap/cmd/internal/plot/canvas"
)

// Size is the size of a picture in pixels.
type Size struct{ Width, Height int }

// DefaultSize suits a page and a screen. Fonts grow with the size, so a larger picture shows the same at more pixels.
var DefaultSize = Size{1200, 600}

const (
	leastWidth, leastHeight = 320, 200
	mostPixels              = 64 << 20 // 256 MiB as an image in memory
)

// Validate refuses sizes that cannot be drawn.
func (s Size) Validate() error {
	switch {
	case s.Width < leastWidth || s.Height < leastHeight:
		return fmt.Errorf("a chart of %d×%d pixels is too small; the least is %d×%d",
			s.Width, s.Height, leastWidth, leastHeight)
	case s.Width > mostPixels/s.Height:
		return fmt.Errorf("a chart of %d×%d pixels is too large; the most are %d million pixels",
			s.Width, s.Height, mostPixels>>20)
	}
	return nil
}

// Format is the form of a picture.
type Format uint8

// The forms.
const (
	PNG Format = iota
	SVG
)

// FormatOf returns the form that a path's extension names.
func FormatOf(path string) (Format, error) {
	switch extension := strings.ToLower(filepath.Ext(path)); extension {
	case ".png":
		return PNG, nil
	case ".svg":
		return SVG, nil
	case "":
		return 0, fmt.Errorf("chart file %q has no extension; use .png or .svg", path)
	default:
		return 0, fmt.Errorf("chart file %q: cannot draw %q; use .png or .svg", path, extension)
	}
}

// Write draws the chart.
func (c Chart) Write(w io.Writer, f Format, s Size) error {
	if err := s.Validate(); err != nil {
		return err
	}
	picture := canvas.NewPNG(s.Width, s.Height)
	if f == SVG {
		picture = canvas.NewSVG(s.Width, s.Height, c.Title)
	}
	sheet := newSheet(c, picture, s)
	if c.Failed != nil {
		if err := c.Failed(); err != nil {
			return err
		}
	}
	sheet.draw()
	return picture.Encode(w)
}

// WriteFile draws the chart into a file, in the form of its extension. A file of that name is replaced when the new one
// is complete. On an error, it stays, and no file is created.
func (c Chart) WriteFile(path string, s Size) error {
	format, err := FormatOf(path)
	if err != nil {
		return err
	}
	var picture bytes.Buffer
	if err := c.Write(&picture, format, s); err != nil {
		return err
	}
	return replace(path, picture.Bytes())
}

// replace gives a file new contents at once. It writes to a device or a pipe as it is.
func replace(path string, data []byte) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return os.WriteFile(path, data, 0o644)
	}
	part := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".part")
	err := os.WriteFile(part, data, 0o644)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("create %s: the directory %s does not exist", path, filepath.Dir(path))
	}
	if err == nil {
		err = os.Rename(part, path)
	}
	if err != nil {
		_ = os.Remove(part)
		return fmt.Errorf("write %s: %w", path, cmp.Or(errors.Unwrap(err), err)) // without the temporary name
	}
	return nil
}
