package main

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/gputap/gputap/cmd/internal/answer"
	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/schema"
)

// docsPage reads a page that holds a contract of JSON keys; package docs tests what else pages say.
func docsPage(t *testing.T, name string) string {
	data, err := os.ReadFile("../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestOutputPageHasEveryKey holds the page to the keys of gputap run, and to the causes of loss.
func TestOutputPageHasEveryKey(t *testing.T) {
	page := docsPage(t, "output.md")
	for _, v := range []any{
		answer.Snapshot{}, answer.Process{}, answer.HostMemory{}, answer.Call{}, answer.GPU{},
		answer.Copy{},
		answer.Counters{}, answer.MemoryInfo{}, answer.Holders{}, answer.Holder{}, answer.Pool{},
		answer.Allocation{}, answer.Kernel{}, answer.Host{}, answer.HostGPU{}, answer.HostLibrary{},
		answer.List[int]{}, answer.Reach{},
		answer.FleetHost{}, answer.FleetGPU{}, answer.FleetKernel{}, answer.FleetCopy{}, answer.Who{},
		answer.Status{}, answer.HostHealth{}, answer.SilentHost{}, answer.FoldHealth{}, answer.AlertHealth{},
	} {
		for i := range reflect.TypeOf(v).NumField() {
			key, _, _ := strings.Cut(reflect.TypeOf(v).Field(i).Tag.Get("json"), ",")
			if key != "" && !strings.Contains(page, "`"+key+"`") {
				t.Errorf("docs/output.md does not explain %s", key)
			}
		}
	}
	for cause := schema.Loss(0); cause < schema.LossOther; cause++ {
		if !strings.Contains(page, "`"+cause.String()+"`") {
			t.Errorf("docs/output.md does not explain the loss %s", cause)
		}
	}
}

// TestOutputPageHasEveryStreamKey holds the page to the keys of gputap stream.
func TestOutputPageHasEveryStreamKey(t *testing.T) {
	page := docsPage(t, "output.md")
	for _, v := range []any{
		busJSON{}, streamJSON{}, foldJSON{}, letter{}, headJSON{}, batchJSON{}, initJSON{}, bus.Step{},
		schema.Topology{},
	} {
		for i := range reflect.TypeOf(v).NumField() {
			key, _, _ := strings.Cut(reflect.TypeOf(v).Field(i).Tag.Get("json"), ",")
			if key != "" && !strings.Contains(page, "`"+key+"`") {
				t.Errorf("docs/output.md does not explain %s", key)
			}
		}
	}
}
