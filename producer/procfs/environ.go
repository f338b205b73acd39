package procfs

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

const (
	// maxEnvironment bounds the part of an environment that is read. Linux takes up to 6 MiB.
	maxEnvironment = 1 << 20
	// maxVariable bounds a variable with its name. CUDA_VISIBLE_DEVICES may list 64 UUIDs.
	maxVariable = 4 << 10
)

// Variables returns the variables with some names from /proc/PID/environ, which is r: the environment with which the
// process began its program. It keeps no other part of the text. If a name occurs twice, the first one counts, as in
// libc. A variable that is too long, or that the process overwrote up to the end of the text, counts as not set.
func Variables(r io.Reader, names map[string]bool) (map[string]string, error) {
	found := map[string]string{}
	in := bufio.NewReaderSize(io.LimitReader(r, maxEnvironment), maxVariable)
	for tooLong := false; ; {
		variable, err := in.ReadSlice(0)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			tooLong = true
			continue
		case errors.Is(err, io.EOF):
			return found, nil
		case err != nil:
			return nil, err
		case tooLong:
			tooLong = false // this is its end
			continue
		}
		name, value, ok := bytes.Cut(variable[:len(variable)-1], []byte("="))
		if !ok || !names[string(name)] {
			continue
		}
		if _, twice := found[string(name)]; !twice {
			found[string(name)] = string(value)
		}
	}
}
