package stub

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Image is one executed program of one process, with the calls that the stub counted, failed ones included.
type Image struct {
	PID    uint32            `json:"pid"`
	Loaded uint64            `json:"loaded"` // boot-time ns
	Calls  map[string]uint64 `json:"calls"`
	Live   uint64            `json:"live"` // bytes of GPU memory
}

// Offsets and sizes in struct stub_truth of producer/testdata/stub.h.
const (
	pidAt      = 12
	liveAt     = 16
	usedAt     = 56
	callsAt    = 64
	callBytes  = 80
	symbolSize = 48 // followed by ok and failed
	calls      = 320
	truthBytes = 39176
)

// Images reads the stub's counts from dir, the value of GPUTAP_STUB_TRUTH. It leaves out images without calls, and
// those whose file is not complete yet.
func Images(dir string) ([]Image, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.*"))
	if err != nil {
		return nil, err
	}
	var images []Image
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if len(data) != truthBytes || string(data[:8]) != "GPUTRUTH" {
			continue // not complete yet
		}
		_, loaded, _ := strings.Cut(filepath.Base(name), ".")
		i := parse(data)
		if i.Loaded, err = strconv.ParseUint(loaded, 10, 64); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if len(i.Calls) > 0 {
			images = append(images, i)
		}
	}
	return images, nil
}

func parse(data []byte) Image {
	number := func(at int) uint64 { return binary.LittleEndian.Uint64(data[at:]) }
	i := Image{PID: binary.LittleEndian.Uint32(data[pidAt:]), Live: number(liveAt), Calls: map[string]uint64{}}
	for n := range min(int(binary.LittleEndian.Uint32(data[usedAt:])), calls) {
		at := callsAt + callBytes*n
		symbol, _, _ := bytes.Cut(data[at:at+symbolSize], []byte{0})
		if made := number(at+symbolSize) + number(at+symbolSize+8); made > 0 {
			i.Calls[string(symbol)] = made
		}
	}
	return i
}
