package analyze

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/gputap/gputap/cmd/internal/app"
)

const (
	maxFrames    = 3 // of a call stack, as text
	frameLetters = 72
)

// row is allocations that read the same as text, but for their times.
type row struct {
	size, class, caller, place string
	count, bytes               uint64
	oldest                     app.Time
}

// writeRows prints the rows with the most bytes. Allocations share a row if their sizes differ by less than the text
// shows, so no two rows read the same.
func writeRows(to io.Writer, list []Allocation) {
	type key struct{ size, class, caller, place string }
	at, rows := map[key]int{}, []row{}
	for i := range list {
		a := &list[i]
		k := key{app.Bytes(a.Bytes), a.Class, callerOf(a), placeOf(a)}
		n, known := at[k]
		if !known {
			n = len(rows)
			at[k] = n
			rows = append(rows, row{k.size, k.class, k.caller, k.place, 0, 0, a.Time})
		}
		r := &rows[n]
		r.count, r.bytes = r.count+1, r.bytes+a.Bytes
		if a.Time.Before(r.oldest.Time) {
			r.oldest = a.Time
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(b.bytes, a.bytes) })
	for _, r := range rows[:min(maxRows, len(rows))] {
		fmt.Fprintf(to, "  %6d × %-12s %11s  %-8s %soldest %s\n", r.count, r.size, app.Bytes(r.bytes), r.class,
			app.Printable(r.caller), r.oldest.Format("15:04:05.000Z"))
		if r.place != "" {
			fmt.Fprintf(to, "           %s\n", app.Printable(r.place))
		}
	}
	if more := len(rows) - maxRows; more > 0 {
		fmt.Fprintf(to, "  … and %d more rows; -o json shows all\n", more)
	}
}

// callerOf returns the thread and the call that allocated memory, as far as they are known, each with a comma.
func callerOf(a *Allocation) (text string) {
	if a.TID > 0 || a.Thread != "" {
		text = strings.TrimSpace(fmt.Sprintf("thread %d %s", a.TID, a.Thread)) + ", "
	}
	if a.Symbol != "" {
		text += a.Symbol + ", "
	}
	return text
}

// placeOf returns the variable and the innermost frames that are not those of an allocator.
func placeOf(a *Allocation) string {
	frames := slices.Clone(a.Stack)
	if first := slices.IndexFunc(frames, func(f string) bool { return !ofAllocator(f) }); first > 0 {
		frames = frames[first:]
	}
	for i := range frames[:min(maxFrames, len(frames))] {
		frames[i] = app.Shorten(frames[i], frameLetters)
	}
	if len(frames) > maxFrames {
		frames = append(frames[:maxFrames], "…")
	}
	place := strings.Join(frames, " < ")
	if a.Name == "" {
		return place
	}
	return strings.TrimSuffix("variable "+a.Name+": "+place, ": ")
}

// ofAllocator reports whether a frame is of the CUDA driver, of its runtime, or of PyTorch's core library.
func ofAllocator(frame string) bool {
	module := frame[strings.LastIndex(frame, " (")+1:]
	for _, library := range []string{"(libcuda.", "(libcudart", "(libc10"} {
		if strings.HasPrefix(module, library) {
			return true
		}
	}
	return false
}

// heading names a process and a GPU.
func heading(w *Who, clusters bool, gpu string) string {
	text := fmt.Sprintf("%s/%d", w.place(clusters), w.PID)
	if w.Comm != "" {
		text += " " + w.Comm
	}
	if strings.HasPrefix(gpu, unknownGPU) {
		return text + " on an unknown GPU"
	}
	if _, err := strconv.Atoi(strings.TrimRight(gpu, "'")); err == nil {
		return text + " on GPU " + gpu
	}
	return fmt.Sprintf("%s on %.12s", text, gpu)
}
