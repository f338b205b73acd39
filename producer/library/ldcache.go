package library

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
)

// ldMagic begins the cache that ldconfig writes: a 48-byte header (magic, number of entries at byte 20), then entries
// of 24 bytes {flags i32, name u32, path u32, osversion u32, hwcap u64}. Names and paths are offsets of C strings from
// the magic. A cache of the old format may precede it.
var ldMagic = []byte("glibc-ld.so.cache1.1")

const (
	ldHeaderBytes = 48
	ldEntryBytes  = 24
)

var errLDCache = errors.New("not an ldconfig cache of the 1.1 form")

// ldCache returns the paths that the cache lists for a library name, in its order of preference.
func ldCache(path, library string) ([]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read ldconfig cache: %w", err)
	}
	paths, err := parseLDCache(data, library)
	if err != nil {
		return nil, fmt.Errorf("read ldconfig cache %s: %w", path, err)
	}
	return paths, nil
}

func parseLDCache(data []byte, library string) ([]string, error) {
	data = data[max(0, bytes.Index(data, ldMagic)):]
	if len(data) < ldHeaderBytes || !bytes.HasPrefix(data, ldMagic) {
		return nil, errLDCache
	}
	n := int(binary.LittleEndian.Uint32(data[20:]))
	if n > (len(data)-ldHeaderBytes)/ldEntryBytes {
		return nil, errLDCache
	}
	var paths []string
	for i := range n {
		entry := data[ldHeaderBytes+i*ldEntryBytes:]
		name, ok := cString(data, binary.LittleEndian.Uint32(entry[4:]))
		if !ok || name != library {
			continue
		}
		if path, ok := cString(data, binary.LittleEndian.Uint32(entry[8:])); ok {
			paths = append(paths, path)
		}
	}
	return paths, nil
}

func cString(data []byte, offset uint32) (string, bool) {
	if int64(offset) >= int64(len(data)) {
		return "", false
	}
	s, _, ok := bytes.Cut(data[offset:], []byte{0})
	return string(s), ok
}
