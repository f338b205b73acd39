package procfs

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestAccountsFollowThePasswdFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "passwd")
	files := []string{filepath.Join(t.TempDir(), "none"), file}
	var u Accounts
	for i, tt := range []struct {
		passwd string
		want   map[uint32]string
	}{
		{"root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000:Ann,,:/home/ann:/bin/sh\nanne:x:1000:1::/:/x\n",
			map[uint32]string{0: "root", 1000: "ann"}},
		{"root:x:0:0:root:/root:/bin/sh\nbea:x:1000:1000:Bea,,:/home/bea:/bin/sh\n",
			map[uint32]string{0: "root", 1000: "bea"}},
		{"+::::::\n# root\nroot:x:zero:0:r:/:/\n:x:5:5::/:/\nshort:x:6\n", map[uint32]string{}},
	} {
		if err := os.WriteFile(file, []byte(tt.passwd), 0o600); err != nil {
			t.Fatal(err)
		}
		changed := time.Unix(int64(i), 0)
		if err := os.Chtimes(file, changed, changed); err != nil {
			t.Fatal(err)
		}
		u.refresh(files)
		if !maps.Equal(u.names, tt.want) {
			t.Errorf("%q: got %v, want %v", tt.passwd, u.names, tt.want)
		}
	}
}
