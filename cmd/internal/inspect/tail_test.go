package inspect

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/event"
	"github.com/gputap/gputap/consumer/bus/bustest"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
)

// TestTailPrintsSelectedEvents publishes the calls of two hosts until the command has printed as many as it should.
func TestTailPrintsSelectedEvents(t *testing.T) {
	t.Parallel()
	url := bustest.Run(t, &server.Options{}).ClientURL()
	nc := bustest.Dial(t, url).Conn()
	h := consumertest.Memory(t, "gpu-1")
	p := h.Process(7, 1, "python3")
	p.User, p.GPU = "ann", &schema.GPU{UUID: "GPU-a0b1c2d3-0000"}
	p.Alloc(8, 0x1000, 70<<20, 100, 5000).Fail("cuMemAlloc_v2", 8, 2, 1<<40, 200)
	h.Process(9, 1, "other").Alloc(9, 0x2000, 1, 300, 5)
	memory := h.Message()
	launches := schema.NewBuilder(schema.KindLaunch)
	thread := launches.Thread(schema.Thread{Process: launches.Process(schema.Process{PID: 7, Comm: "python3",
		User: "ann"}), TID: 8})
	call := launches.Call(schema.CallRef{Symbol: "cuLaunchKernel", Op: schema.OpLaunch})
	shape := launches.Shape(schema.LaunchShape{Call: call, Func: launches.Func(schema.Func{Name: "_Z4gemmPf"}),
		Grid: [3]uint32{4, 2, 1}, Block: [3]uint32{256, 1, 1}})
	launches.AddLaunch(&schema.Launch{Time: 400, Thread: thread, Shape: shape,
		CUDAStream: launches.CUDAStream(0)})
	header := h.Header
	header.Seq = 1
	launch := launches.Encode(&header)
	tensors := schema.NewBuilder(schema.KindTensor)
	thread = tensors.Thread(schema.Thread{Process: tensors.Process(schema.Process{PID: 7, Comm: "python3"}), TID: 8})
	for i, op := range []schema.Op{schema.OpBlockAlloc, schema.OpBlockFree} {
		report := tensors.Call(schema.CallRef{Op: op,
			Symbol: "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"})
		tensors.AddTensor(&schema.Tensor{Time: 500 + schema.KTime(i), Thread: thread, Ptr: 0x3000, Bytes: 2 << 20,
			Call: report})
	}
	tensor := tensors.Encode(&header)

	newer, err := os.ReadFile("../../../schema/testdata/newer_kind.golden")
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string][]string{
		"": {"22:13:20.000000  gpu-1  7 python3  cuLaunchKernel  gemm(float*) <<<4×2×1, 256×1×1>>>"},
		"--kind tensor": {
			"22:13:20.000000  gpu-1  7 python3  c10::reportMemoryUsageToProfiler  block taken  2.00 MiB  at 0x3000",
			"22:13:20.000000  gpu-1  7 python3  c10::reportMemoryUsageToProfiler  block given back  " +
				"2.00 MiB  at 0x3000",
		},
		"--user ann --kind memory": {
			"22:13:20.000000  gpu-1  7 python3  cuMemAlloc_v2  device  70.00 MiB  at 0x1000  GPU-a0b1c2d3  5µs",
			"22:13:20.000000  gpu-1  7 python3  cuMemAlloc_v2  device  1.00 TiB  GPU-a0b1c2d3  1ns  " +
				"failed: CUDA_ERROR_OUT_OF_MEMORY",
		},
		"--kind launch --host gpu-?": {
			"22:13:20.000000  gpu-1  7 python3  cuLaunchKernel  gemm(float*) <<<4×2×1, 256×1×1>>>",
		},
	} {
		got := tailed(t, url, len(want), strings.Fields(line), func() {
			if line == "" {
				for subject, data := range map[string][]byte{"newer": newer, "launch": launch} {
					if err := nc.Publish("gputap.v1.ev.0.test.gpu-1."+subject, data); err != nil {
						t.Fatal(err)
					}
				}
				return
			}
			for subject, data := range map[string][]byte{
				"gputap.v1.ev.0.test.gpu-1.memory": memory, "gputap.v1.ev.0.test.gpu-1.launch": launch,
				"gputap.v1.ev.0.test.gpu-1.tensor": tensor,
				"gputap.v1.ev.0.test.gpu-1.host":   []byte("not of a kind with events"),
			} {
				if err := nc.Publish(subject, data); err != nil {
					t.Fatal(err)
				}
			}
		})
		for i := range want {
			if !strings.HasPrefix(got[i], want[i]) {
				t.Errorf("%s: line %d is\n%s\nwant\n%s", line, i, got[i], want[i])
			}
		}
	}
	got := tailed(t, url, 1, []string{"-o", "json", "--comm", "python3", "--kind", "memory"}, func() {
		if err := nc.Publish("gputap.v1.ev.0.test.gpu-1.memory", memory); err != nil {
			t.Fatal(err)
		}
	})
	var e event.Event
	if err := json.Unmarshal([]byte(got[0]), &e); err != nil || e.Bytes != 70<<20 || e.TID != 8 ||
		e.Cluster != "test" || e.Address != "0x1000" || e.Op != "alloc" || e.Seconds != 5e-6 ||
		!e.Time.Equal(time.Unix(1_700_000_000, 100)) {
		t.Errorf("%v: %s", err, got[0])
	}
}

func TestOutputPageHasEveryKeyOfAnEvent(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/answers.md")
	if err != nil {
		t.Fatal(err)
	}
	for i := range reflect.TypeOf(event.Event{}).NumField() {
		key, _, _ := strings.Cut(reflect.TypeOf(event.Event{}).Field(i).Tag.Get("json"), ",")
		if !strings.Contains(string(page), "`"+key+"`") {
			t.Errorf("docs/answers.md does not explain %s", key)
		}
	}
}

// tailed runs gputap tail and publishes again and again, until the command has printed n lines.
func tailed(t *testing.T, url string, n int, args []string, publish func()) []string {
	t.Helper()
	var out bytes.Buffer
	p := &app.Process{Name: "gputap", Metrics: prometheus.NewRegistry(), Stdout: &out, Stderr: io.Discard,
		Log: slog.New(slog.DiscardHandler)}
	root := &cobra.Command{Use: "gputap", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(Commands(p)...)
	root.SetArgs(append([]string{"tail", "--nats.url", url, "--limit", string(rune('0' + n))}, args...))
	ctx, cancel := context.WithTimeout(t.Context(), enough)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- root.ExecuteContext(ctx) }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if err != nil || len(lines) != n {
				t.Fatalf("%v: %v, %d lines:\n%s", args, err, len(lines), out.String())
			}
			return lines
		case <-tick.C:
			publish()
		}
	}
}

const enough = 30 * time.Second
