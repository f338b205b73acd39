package process

import (
	"os"
	"testing"

	"github.com/gputap/gputap/producer/procfs"
	"github.com/gputap/gputap/schema"
)

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

// own returns this process as a record describes it.
func own(t testing.TB) schema.Process {
	ticks := procfs.StartTicks(procfs.ReadFile("/proc/self/stat"))
	return schema.Process{PID: uint32(os.Getpid()), Start: schema.KTime(ticks) * procfs.Tick, UID: uint32(os.Getuid())}
}

func TestIdentity(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	me := own(t)
	cgroup := procfs.CgroupOf(procfs.ReadFile("/proc/self/cgroup"), nil)
	i := newIdentity()
	p, _ := i.complete(me, me.PID, me.Start+procfs.Tick-1)
	if p.Exe != exe || p.Cgroup != cgroup.Path || p.NSPID != 0 || p.UID != me.UID || p.User != i.accounts.Name(me.UID) {
		t.Errorf("got %+v, want program %s and control group %s", p, exe, cgroup.Path)
	}
	unannounced, _ := i.complete(schema.Process{PID: me.PID}, me.PID, me.Start)
	if unannounced.UID != me.UID || unannounced.User != p.User || unannounced.Exe != exe {
		t.Errorf("without an announcement: %+v", unannounced)
	}
}

// TestReusedPIDHasNoIdentity: /proc of a reused pid says nothing about the process that had it before.
func TestReusedPIDHasNoIdentity(t *testing.T) {
	me := own(t)
	before := me
	before.Start -= procfs.Tick
	before.Exe, before.Container, before.Cgroup = "/old", "c", "/c" // of the image before an exec
	want := before
	i := newIdentity()
	want.Exe, want.User = "", i.accounts.Name(before.UID)
	if got, env := i.complete(before, me.PID, before.Start); got != want || env != nil {
		t.Errorf("got %+v, want %+v", got, want)
	}
	want = schema.Process{PID: me.PID}
	if got, env := i.complete(want, me.PID, before.Start); got != want || env != nil {
		t.Errorf("without an announcement: %+v", got)
	}
	want = schema.Process{PID: 1 << 23}
	if got, env := i.complete(want, 1<<23, 1); got != want || env != nil {
		t.Errorf("of no process: %+v", got)
	}
}

func BenchmarkIdentity(b *testing.B) {
	me := own(b)
	i := newIdentity()
	for b.Loop() {
		i.complete(me, me.PID, me.Start)
	}
}
