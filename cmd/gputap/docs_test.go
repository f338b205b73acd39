package main

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/gputap/gputap/cmd/internal/analyze"
	"github.com/gputap/gputap/cmd/internal/answer"
	"github.com/gputap/gputap/cmd/internal/backtest"
	"github.com/gputap/gputap/cmd/internal/report"
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

// TestPagesHaveEveryKey holds the pages to the keys of gputap run and of the answers, and to the causes of loss.
func TestPagesHaveEveryKey(t *testing.T) {
	page, answers := docsPage(t, "output.md"), docsPage(t, "answers.md")
	explains(t, page, report.Snapshot{}, report.Process{}, report.HostMemory{}, report.Call{}, report.GPU{},
		report.Copy{}, report.Counters{}, report.MemoryInfo{}, report.Holders{}, report.Holder{}, report.Pool{},
		report.Allocation{}, report.Kernel{}, report.Host{}, report.HostGPU{}, report.HostLibrary{},
		report.Torch{}, report.Block{}, report.Verdict{}, report.Group{}, report.Waits{}, report.Unseen{},
		report.Rate{}, report.KernelRate{}, report.ShapeRate{}, report.GraphRate{}, report.LaunchGaps{},
		report.CopyGroup{}, report.CopyUse{}, report.CopyRate{}, report.Thread{})
	explains(t, answers, answer.List[int]{}, answer.Reach{}, answer.FleetHost{}, answer.FleetGPU{},
		answer.FleetKernel{}, answer.FleetCopy{}, answer.Who{}, answer.FleetJob{}, answer.JobRank{},
		answer.Status{}, answer.HostHealth{}, answer.SilentHost{}, answer.FoldHealth{}, answer.AlertHealth{},
		answer.Top{}, answer.TopItem{})
	explains(t, docsPage(t, "analyze.md"), analyze.Who{}, analyze.Allocation{}, analyze.Group{}, analyze.Live{},
		analyze.Peak{}, analyze.Leak{}, analyze.Process[int]{}, analyze.Result[int]{}, analyze.Findings{},
		analyze.Launches{}, analyze.Copies{}, analyze.Rates[int]{})
	explains(t, docsPage(t, "backtest.md"), backtest.Result{}, backtest.Rule{}, backtest.Counts{})
	explains(t, docsPage(t, "diff.md"), analyze.Diff{}, analyze.ProcessDiff{}, analyze.Figures{}, analyze.GroupDiff{})
	for cause := schema.Loss(0); cause < schema.LossOther; cause++ {
		if !strings.Contains(page, "`"+cause.String()+"`") {
			t.Errorf("docs/output.md does not explain the loss %s", cause)
		}
	}
}

// explains reports the JSON keys of the values that a page does not explain.
func explains(t *testing.T, page string, values ...any) {
	t.Helper()
	for _, v := range values {
		for i := range reflect.TypeOf(v).NumField() {
			key, _, _ := strings.Cut(reflect.TypeOf(v).Field(i).Tag.Get("json"), ",")
			if key != "" && !strings.Contains(page, "`"+key+"`") {
				t.Errorf("the page does not explain %s of %T", key, v)
			}
		}
	}
}

// TestAnswersPageHasEveryStreamKey holds the page to the keys of gputap stream.
func TestAnswersPageHasEveryStreamKey(t *testing.T) {
	explains(t, docsPage(t, "answers.md"), busJSON{}, streamJSON{}, foldJSON{}, letter{}, headJSON{}, batchJSON{},
		initJSON{}, bus.Step{}, schema.Topology{}, replayedJSON{})
}
