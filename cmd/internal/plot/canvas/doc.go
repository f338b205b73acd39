// Package canvas is a surface for charts that ends as a PNG or an SVG.
//
// Unit. Coordinates, widths and font sizes are in pixels of the picture; the origin is the upper left corner, y points
// down. A rectangle with whole coordinates has sharp edges in both forms.
//
// Text. Widths are those of the Go fonts, which the PNG uses. An SVG names common sans-serif fonts, and anchors each
// text itself, so that a font of another width keeps the alignment. In a PNG, a letter that the Go fonts lack is drawn
// as a box.
//
// Bytes. Equal calls give equal bytes: the pictures carry no time, no version and no random identifier.
//
// Concurrency. One goroutine uses a canvas. Width may be called by any number of goroutines.
package canvas
