package canvas

import (
	"sync"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
)

// faceKey names a face. Sizes are rounded to whole pixels, so few faces exist.
type faceKey struct {
	size int
	bold bool
}

var faces = struct {
	mu    sync.Mutex
	byKey map[faceKey]font.Face
}{byKey: map[faceKey]font.Face{}}

// withFace calls use with the face of f. A face caches the glyph that it drew last, so one goroutine uses it at a time.
func withFace(f Font, use func(font.Face)) {
	faces.mu.Lock()
	defer faces.mu.Unlock()
	key := faceKey{int(f.Size + 0.5), f.Bold}
	face, ok := faces.byKey[key]
	if !ok {
		face = newFace(key)
		faces.byKey[key] = face
	}
	use(face)
}

func newFace(key faceKey) font.Face {
	ttf := goregular.TTF
	if key.bold {
		ttf = gobold.TTF
	}
	parsed, err := opentype.Parse(ttf)
	if err != nil {
		panic("canvas: the built-in font does not parse: " + err.Error())
	}
	// At 72 dots per inch, a point is a pixel.
	face, err := opentype.NewFace(parsed, &opentype.FaceOptions{Size: float64(key.size), DPI: 72})
	if err != nil {
		panic("canvas: the built-in font has no face: " + err.Error())
	}
	return face
}

// Width returns the width of a text in pixels.
func Width(text string, f Font) (pixels float64) {
	withFace(f, func(face font.Face) { pixels = float64(font.MeasureString(face, text)) / 64 })
	return pixels
}
