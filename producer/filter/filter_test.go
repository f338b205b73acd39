package filter

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gputap/gputap/bpf"
	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/producer/procfs"
)

const (
	ctr      = "4bfc2c2d1ed3a1c8c1fbd0f6ec9d2f8ac1a8a8d6b9b5f3f0b1a9d8e7c6b5a493"
	pod      = "7c0a4f3e-52d1-4a1c-9f86-d081884c7d65"
	podSlice = "7c0a4f3e_52d1_4a1c_9f86_d081884c7d65"
)

func TestResolve(t *testing.T) {
	var out bytes.Buffer
	me := uint32(os.Getpid())
	f, err := Resolve(config.Filter{
		Comm: []string{"python3", "exactly-fifteen", "more-than-fifteen"}, PID: []string{fmt.Sprint(me)},
		UID: []string{"root", "1000"}, Container: []string{pod},
	}, slog.New(slog.NewTextHandler(&out, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"python3", "exactly-fifteen", "more-than-fifte"}; !slices.Equal(f.Comms, want) {
		t.Errorf("names %q, want %q", f.Comms, want)
	}
	if n := strings.Count(out.String(), "level=WARN"); n != 1 || !strings.Contains(out.String(),
		"compared=more-than-fifte") {
		t.Errorf("%d warnings: %s", n, &out)
	}
	if !slices.Equal(f.UIDs, []uint32{0, 1000}) || f.PIDs[me] != procfs.StartTicks(
		procfs.ReadFile("/proc/self/stat")) || f.Cgroups != bpf.FilterContainer {
		t.Errorf("got %+v", f)
	}
	for _, tt := range []struct {
		filter config.Filter
		want   string
	}{
		{config.Filter{PID: []string{"4194304"}}, "filter.pid: no process 4194304 is running: start it first"},
		{config.Filter{UID: []string{"no-such-user"}},
			`filter.uid: no user "no-such-user" in /etc/passwd of this host: use a number`},
	} {
		if _, err := Resolve(tt.filter, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(),
			tt.want) {
			t.Errorf("got %v, want it to say %q", err, tt.want)
		}
	}
}

func TestThreadIDIsRejectedAsProcess(t *testing.T) {
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == fmt.Sprint(os.Getpid()) {
			continue
		}
		want := fmt.Sprintf("%s is a thread of process %d", e.Name(), os.Getpid())
		if _, _, err := runningProcess(e.Name()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %q", err, want)
		}
		return
	}
	t.Skip("this process has one thread")
}

func TestConditionsOfControlGroups(t *testing.T) {
	const second = "4bfc2c2d1ed3" + "ffffffffffffffffffffffffffffffffffffffffffffffffffff"
	for _, tt := range []struct {
		name   string
		filter config.Filter
		group  string
		want   uint8
	}{
		{"path", config.Filter{Cgroup: []string{"/a/b/"}}, "/a/b", bpf.FilterCgroup},
		{"inside", config.Filter{Cgroup: []string{"/a/b"}}, "/a/b/c", 0}, // Linux walks up itself
		{"path with the mount point", config.Filter{Cgroup: []string{"/sys/fs/cgroup/a"}}, "/a", bpf.FilterCgroup},
		{"mount point", config.Filter{Cgroup: []string{"/sys/fs/cgroup"}}, "/", bpf.FilterCgroup},
		{"root", config.Filter{Cgroup: []string{"/"}}, "/", bpf.FilterCgroup},
		{"root is not all", config.Filter{Cgroup: []string{"/"}}, "/a", 0},
		{"name", config.Filter{Cgroup: []string{"slurmstepd.scope"}}, "/system.slice/slurmstepd.scope",
			bpf.FilterCgroup},
		{"name in the middle", config.Filter{Cgroup: []string{"b"}}, "/a/b/c", 0},
		{"container", config.Filter{Container: []string{ctr}}, "/system.slice/docker-" + ctr + ".scope",
			bpf.FilterContainer},
		{"its monitor", config.Filter{Container: []string{ctr}}, "/machine.slice/libpod-conmon-" + ctr + ".scope", 0},
		{"pod", config.Filter{Container: []string{strings.ToUpper(pod)}}, "/kubepods/pod" + pod, bpf.FilterContainer},
		{"container of a pod", config.Filter{Container: []string{pod}}, "/kubepods/pod" + pod + "/" + ctr, 0},
		{"pod, flat", config.Filter{Container: []string{pod}},
			"/kubepods-pod" + podSlice + ".slice:cri-containerd:" + ctr, bpf.FilterContainer},
		{"both", config.Filter{Container: []string{ctr[:12]}, Cgroup: []string{"/" + ctr}}, "/" + ctr,
			bpf.FilterContainer | bpf.FilterCgroup},
		{"LXC has no digits", config.Filter{Container: []string{"abcdefabcdef"}}, "/lxc.payload.abcdefabcdefabc", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tree := CgroupTree{mount: procfs.HostRoot + "/sys/fs/cgroup", groups: map[string]bool{},
				ids: map[string]string{}}
			tree.parse(tt.filter)
			if got := tree.conditions(tt.group); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
	tree := CgroupTree{containers: []string{ctr[:12]}, ids: map[string]string{}}
	for _, group := range []string{"/docker/" + ctr, "/docker/" + ctr, "/x/" + ctr} {
		if tree.conditions(group) == 0 || tree.ambiguous != nil {
			t.Errorf("%s: %v", group, tree.ambiguous)
		}
	}
	if tree.conditions("/docker/"+second) != 0 || tree.ambiguous == nil || !strings.Contains(tree.ambiguous.Error(),
		"use more digits") {
		t.Errorf("two containers of one beginning: %v", tree.ambiguous)
	}
}
