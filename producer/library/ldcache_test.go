package library

import (
	"encoding/binary"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestLDCache compares with what ldconfig itself prints of this machine's cache.
func TestLDCache(t *testing.T) {
	if _, err := os.Stat("/etc/ld.so.cache"); err != nil {
		t.Skipf("this system has no ldconfig cache: %v", err)
	}
	out, err := exec.Command("/sbin/ldconfig", "-p").Output()
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for line := range strings.Lines(string(out)) {
		name, path, ok := strings.Cut(strings.TrimSpace(line), " => ")
		if ok && strings.HasPrefix(name, "libc.so.6 ") {
			want = append(want, path)
		}
	}
	got, err := ldCache("/etc/ld.so.cache", "libc.so.6")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) || len(got) == 0 {
		t.Errorf("got %v, ldconfig -p says %v", got, want)
	}
}

func TestLDCacheRefuses(t *testing.T) {
	header := append([]byte(nil), ldMagic...)
	header = append(header, make([]byte, ldHeaderBytes-len(ldMagic))...)
	manyEntries := append([]byte(nil), header...)
	binary.LittleEndian.PutUint32(manyEntries[20:], 1<<31)
	for name, data := range map[string][]byte{
		"empty": nil, "other magic": []byte("glibc-ld.so.cache9.9 and more"), "cut header": header[:30],
		"more entries than bytes": manyEntries,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parseLDCache(data, "libc.so.6"); err == nil {
				t.Error("no error")
			}
		})
	}
}

func FuzzLDCache(f *testing.F) {
	header := append(append([]byte(nil), ldMagic...), make([]byte, 64)...)
	header[20] = 1
	f.Add(header)
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = parseLDCache(data, "libcuda.so.1") })
}
