package export

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
)

func TestProfileEqualsNaiveSums(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 6)
	path := f.record()
	p, err := profile.Parse(bytes.NewReader(exported(t, "pprof", path, "-o", "-")))
	check(t, err)
	check(t, p.CheckValid())
	var types []string
	for _, of := range p.SampleType {
		types = append(types, of.Type+"/"+of.Unit)
	}
	const order = "alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes"
	if got := strings.Join(types, " "); got != order {
		t.Errorf("the sample types are %s", got)
	}
	got, want := map[string][4]int64{}, map[string][4]int64{}
	for _, s := range p.Sample {
		var stack []string
		for i := len(s.Location) - 1; i >= 0; i-- {
			stack = append(stack, s.Location[i].Line[0].Function.Name)
		}
		stack = append(stack, s.Label["host"][0], s.Label["gpu"][0], s.Label["class"][0], s.Label["job"][0],
			fmt.Sprint(s.NumLabel["pid"][0]))
		got[strings.Join(stack, ";")] = [4]int64(s.Value)
	}
	for _, l := range f.lives {
		symbol := map[string]string{"device": "cuMemAlloc_v2", "managed": "cuMemAllocManaged"}[l.class]
		key := fmt.Sprintf("%s;%s (%d);GPU-%s;%s memory;%s (thread %d);%s;%[1]s;GPU-%[1]s;%[5]s;slurm:1;%[3]d", l.host,
			l.comm, l.pid, l.host, l.class, l.comm, l.tid, symbol)
		v := want[key]
		v[0], v[1] = v[0]+1, v[1]+int64(l.bytes)
		if l.until == 0 {
			v[2], v[3] = v[2]+1, v[3]+int64(l.bytes)
		}
		want[key] = v
	}
	for key, values := range want {
		if got[key] != values {
			t.Errorf("%s: %v, want %v", key, got[key], values)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d samples, want %d: %v", len(got), len(want), got)
	}
}

func TestGoToolOpensTheProfile(t *testing.T) {
	t.Parallel()
	tool, err := exec.LookPath("go")
	if err != nil {
		needs(t, "GPUTAP_REQUIRE_PYTHON", "tool go")
	}
	file := filepath.Join(t.TempDir(), "memory.pb.gz")
	exported(t, "pprof", newFleet(t, 6).record(), "-o", file)
	cmd := exec.Command(tool, "tool", "pprof", "-top", "-sample_index=alloc_objects", file)
	cmd.Env = append(os.Environ(), "PPROF_TMPDIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "cuMemAllocManaged") {
		t.Errorf("%v: %s", err, out)
	}
}
