package producer

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/schema"
)

func TestStartTicks(t *testing.T) {
	const behind = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21\n"
	for stat, want := range map[string]uint64{
		"12 (python3)" + behind: 4711, "12 (a) S 9 (b)" + behind: 4711, "": 0, "12 (x) S 1 2": 0,
	} {
		if got := startTicks(stat); got != want {
			t.Errorf("%q: got %d, want %d", stat, got, want)
		}
	}
}

func TestNSPID(t *testing.T) {
	for status, want := range map[string]uint32{
		"Name:\tx\nTgid:\t7\nNSpid:\t7\n": 0, "NSpid:\t7\t1\n": 1, "NSpid:\t7\t40\t12\nNSpgid:\t7\t40\t9\n": 12,
		"Tgid:\t7\n": 0, "NSpid:\tx\n": 0, "": 0,
	} {
		if got := nsPID(status, 7); got != want {
			t.Errorf("%q: got %d, want %d", status, got, want)
		}
	}
	if got := realUID("Name:\tx\nUid:\t1000\t0\t0\t0\n"); got != 1000 {
		t.Errorf("uid %d", got)
	}
}

func TestUsers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "passwd")
	files := []string{filepath.Join(t.TempDir(), "none"), file}
	var u accounts
	for i, tt := range []struct {
		passwd string
		want   map[uint32]string
	}{
		{"root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000:Ann,,:/home/ann:/bin/sh\nanne:x:1000:1::/:/x\n", map[uint32]string{0: "root", 1000: "ann"}},
		{"root:x:0:0:root:/root:/bin/sh\nbea:x:1000:1000:Bea,,:/home/bea:/bin/sh\n", map[uint32]string{0: "root", 1000: "bea"}},
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

// own is this process as a record would tell it.
func own(t testing.TB) schema.Process {
	ticks := startTicks(readFile("/proc/self/stat"))
	return schema.Process{PID: uint32(os.Getpid()), Start: schema.KTime(ticks) * tick, UID: uint32(os.Getuid())}
}

func TestIdentity(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	me := own(t)
	cgroup := cgroupIn(readFile("/proc/self/cgroup"), nil)
	i := newIdentity()
	p := i.of(me, me.PID, me.Start+tick-1)
	if p.Exe != exe || p.Cgroup != cgroup.path || p.NSPID != 0 || p.UID != me.UID || p.User != i.accounts.name(me.UID) {
		t.Errorf("got %+v, want program %s and control group %s", p, exe, cgroup.path)
	}
	unannounced := i.of(schema.Process{PID: me.PID}, me.PID, me.Start)
	if unannounced.UID != me.UID || unannounced.User != p.User || unannounced.Exe != exe {
		t.Errorf("without an announcement: %+v", unannounced)
	}
}

// TestIdentityOfAnother: a pid that was given out again tells nothing of the process that had it before.
func TestIdentityOfAnother(t *testing.T) {
	me := own(t)
	before := me
	before.Start -= tick
	before.Exe, before.Container, before.Cgroup = "/old", "c", "/c" // of the image before an exec
	want := before
	i := newIdentity()
	want.Exe, want.User = "", i.accounts.name(before.UID)
	if got := i.of(before, me.PID, before.Start); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := i.of(schema.Process{PID: me.PID}, me.PID, before.Start); got != (schema.Process{PID: me.PID}) {
		t.Errorf("without an announcement: %+v", got)
	}
	if got := i.of(schema.Process{PID: 1 << 23}, 1<<23, 1); got != (schema.Process{PID: 1 << 23}) {
		t.Errorf("of no process: %+v", got)
	}
}

func BenchmarkIdentity(b *testing.B) {
	me := own(b)
	i := newIdentity()
	for b.Loop() {
		i.of(me, me.PID, me.Start)
	}
}

// TestInboxPrefix: the permissions of a host name it.
func TestInboxPrefix(t *testing.T) {
	got, err := InboxPrefix(config.Producer{Cluster: "c 1", Host: "gpu-1.example.com"})
	if err != nil || got != "_INBOX.c_1.gpu-1_example_com" {
		t.Errorf("got %s, %v", got, err)
	}
	if got, err = InboxPrefix(config.Producer{Cluster: "c"}); err != nil || got == "_INBOX.c." || got == "_INBOX.c._" {
		t.Errorf("without a name in the configuration: %s, %v", got, err)
	}
}
