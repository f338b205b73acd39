package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer"
	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/consumer/shard"
	"github.com/gputap/gputap/schema"
)

const asProgram = "QUOTA_TEST_AS_PROGRAM"

// TestMain is the program itself when the variable is set: a test starts its own file instead of building another.
func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestQuotaCountsLiveMemory checks that an allocation over a live address and a reboot end the earlier allocations.
func TestQuotaCountsLiveMemory(t *testing.T) {
	q, hosts := quota{}, map[string]*consumertest.Host{}
	for _, step := range []struct {
		boot, what string
		used       uint64
	}{
		{"b1", "alloc", 100}, {"b1", "alloc", 100}, {"b1", "free", 0}, {"b1", "alloc", 100}, {"b1", "exit", 0},
		{"b1", "alloc", 100}, {"b2", "alloc", 100}, {"b3", "exit", 0}, {"b3", "alloc", 100},
	} {
		host := hosts[step.boot]
		if host == nil {
			host = consumertest.Memory(t, "gpu-1")
			host.Header.BootID = step.boot
			hosts[step.boot] = host
		}
		switch p := host.Process(uint32(step.boot[1]), 1, "python3"); step.what { // each boot has its own process
		case "alloc":
			p.Alloc(7, 0x1000, 100, 10, 1)
		case "free":
			p.Free(7, 0x1000, 20, 1)
		case "exit":
			p.Exit(30)
		}
		if err := q.Apply(host.Batch()); err != nil {
			t.Fatal(err)
		}
		if h := q["test/gpu-1"]; h.Used["0"] != step.used || len(h.Live) != int(step.used/100) {
			t.Errorf("after %s of boot %s %d are used, %d live; want %d used", step.what, step.boot, h.Used["0"],
				len(h.Live), step.used)
		}
	}
}

// TestQuotaRestoresState also restores a state without a boot id.
func TestQuotaRestoresState(t *testing.T) {
	q := quota{}
	if err := q.Restore(consumer.Section{Cluster: "test", Host: "gpu-1",
		Data: []byte(`{"Live":{"7 since 1: 4096":100},"Used":{"0":100}}`)}); err != nil {
		t.Fatal(err)
	}
	host, again := consumertest.Memory(t, "gpu-1"), quota{}
	host.Process(7, 1, "python3").Alloc(7, 0x2000, 50, 10, 1)
	if err := q.Apply(host.Batch()); err != nil {
		t.Fatal(err)
	}
	if err := q.Snapshot(func(s consumer.Section) error { return again.Restore(s) }); err != nil {
		t.Fatal(err)
	}
	if h := again["test/gpu-1"]; h == nil || h.Used["0"] != 150 || len(h.Live) != 2 || h.Boot != "boot-1" {
		t.Errorf("%+v", h)
	}
}

// TestQuotaIsShort checks that an example consumer fits on two pages.
func TestQuotaIsShort(t *testing.T) {
	text, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte("\n")); n >= 100 {
		t.Errorf("%d lines, docs/consumers.md says less than 100", n)
	}
}

// TestQuotaRestartResumesFromCheckpoint checks that a new process continues with the saved counts.
func TestQuotaRestartResumesFromCheckpoint(t *testing.T) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(),
		NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server does not start")
	}
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if err := bus.EnsureStreams(t.Context(), js, bus.StreamOptions{MaxBytes: 64 << 20}); err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	start := func() (*exec.Cmd, *bufio.Scanner) {
		cmd := exec.Command(program, "-nats", s.ClientURL(), "-gib", "40")
		cmd.Env = append(os.Environ(), asProgram+"=1")
		out, err := cmd.StdoutPipe()
		if err != nil || cmd.Start() != nil {
			t.Fatal("it does not start")
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		return cmd, bufio.NewScanner(out)
	}
	seq := uint64(0)
	call := func(op schema.Op, ptr, bytes uint64) {
		t.Helper()
		seq++
		b := schema.NewBuilder(schema.KindMemory)
		p := b.Process(schema.Process{PID: 7, Start: 1, Comm: "python3", UID: 1007, User: "user7"})
		b.AddMemory(&schema.Memory{
			Time: schema.KTime(seq), Thread: b.Thread(schema.Thread{Process: p, TID: 7}), Ptr: ptr, Bytes: bytes,
			Call: b.Call(schema.CallRef{Symbol: "cuMem", Op: op, Class: schema.ClassDevice}),
		})
		data := b.Encode(&schema.Header{Cluster: "c", Host: "gpu-1", BootID: "boot", Run: 1, Seq: seq})
		if _, err := js.Publish(t.Context(), schema.Subject(0, "c", "gpu-1", schema.KindMemory), data); err != nil {
			t.Fatal(err)
		}
	}

	first, out := start()
	says := func(want string) {
		t.Helper()
		if !out.Scan() || out.Text() != want {
			t.Fatalf("it says %q, want %q", out.Text(), want)
		}
	}
	call(schema.OpAlloc, 0x1000, 30<<30)
	call(schema.OpAlloc, 0x2000, 11<<30)
	says("gpu-1: user 1007 user7 holds 41.0 GiB")
	if err := first.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := first.Wait(); err != nil {
		t.Fatal(err)
	}
	if saved, err := shard.Saved(t.Context(), js, "quota", 0); err != nil || saved.Sequence != seq {
		t.Fatalf("its state is saved up to %d, want %d: %v", saved.Sequence, seq, err)
	}
	call(schema.OpFree, 0x2000, 0)
	call(schema.OpAlloc, 0x3000, 9<<30)
	call(schema.OpAlloc, 0x4000, 3<<30)
	_, out = start()
	says("gpu-1: user 1007 user7 holds 42.0 GiB")
}
