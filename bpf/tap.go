package bpf

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"runtime"
	"sync"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// LostCauses is the number of loss counters, which have the order of schema.Loss.
const LostCauses = 5

// cpu mirrors struct cpu of maps.h.
type cpu struct {
	Lost             [LostCauses]uint64
	BulkSinceWake    uint32
	ControlSinceWake uint32
}

// Tap holds the loaded programs and their rings. One goroutine at a time calls its methods.
type Tap struct {
	Control *ebpf.Map
	Bulk    []*ebpf.Map // one per possible CPU
	coll    *ebpf.Collection
	links   []link.Link // of the process tracepoints; the garbage collector closes links without a reference
	perCPU  []cpu
	multi   bool           // attach with uprobe_multi, else with a perf event per address
	removal sync.WaitGroup // of perf events
}

// Load loads the programs into Linux, for uprobe_multi or for perf events. It rounds ring sizes up to powers of two of
// at
// least a page. With bulkBytes 0 it chooses the size by the number of CPUs.
func Load(controlBytes, bulkBytes int, multi bool, filter Filter) (*Tap, error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("count CPUs: %w", err)
	}
	spec, err := LoadTap()
	if err != nil {
		return nil, fmt.Errorf("read embedded programs: %w", err)
	}
	if err := filter.apply(spec); err != nil {
		return nil, err
	}
	if err := enoughFiles(cpus + len(spec.Maps) + len(spec.Programs)); err != nil {
		return nil, fmt.Errorf("load programs: %w", explain(err))
	}
	if !multi {
		forPerfEvents(spec)
	}
	if bulkBytes == 0 {
		bulkBytes = bulkRingBytes(cpus)
	}
	t := &Tap{multi: multi}
	bulk := spec.Maps[TapMapBulk]
	bulk.MaxEntries = uint32(cpus)
	bulk.InnerMap.MaxEntries = ringSize(bulkBytes)
	for i := range cpus {
		ring, err := ebpf.NewMap(&ebpf.MapSpec{Name: "bulk_ring", Type: ebpf.RingBuf, MaxEntries: ringSize(bulkBytes)})
		if err != nil {
			t.Close()
			return nil, fmt.Errorf("create ring of CPU %d, %d bytes: %w", i, ringSize(bulkBytes), explain(err))
		}
		t.Bulk = append(t.Bulk, ring)
		bulk.Contents = append(bulk.Contents, ebpf.MapKV{Key: uint32(i), Value: ring})
	}
	spec.Maps[TapMapControl].MaxEntries = ringSize(controlBytes)
	if t.coll, err = ebpf.NewCollection(spec); err != nil {
		t.Close()
		return nil, fmt.Errorf("load programs: %w", explain(err))
	}
	t.Control = t.coll.Maps[TapMapControl]
	t.perCPU = make([]cpu, cpus)
	return t, nil
}

// WatchProcesses attaches the programs that record exec and exit of processes that made calls.
func (t *Tap) WatchProcesses() error {
	for _, name := range []string{TapProgProcessExec, TapProgProcessExit} {
		l, err := link.AttachTracing(link.TracingOptions{Program: t.coll.Programs[name]})
		if err != nil {
			return fmt.Errorf("attach %s: %w", name, explain(err))
		}
		t.links = append(t.links, l)
	}
	return nil
}

// Program returns the program of that name, nil if there is none.
func (t *Tap) Program(name string) *ebpf.Program { return t.coll.Programs[name] }

// Lost returns the sums of the loss counters of all CPUs. They only grow.
func (t *Tap) Lost() (sum [LostCauses]uint64, err error) {
	if err := t.coll.Maps[TapMapCpus].Lookup(uint32(0), &t.perCPU); err != nil {
		return sum, fmt.Errorf("read loss counters: %w", err)
	}
	for i := range t.perCPU {
		for cause, n := range t.perCPU[i].Lost {
			sum[cause] += n
		}
	}
	return sum, nil
}

// Close detaches the tracepoints and frees programs and rings.
func (t *Tap) Close() {
	for _, l := range t.links {
		_ = l.Close()
	}
	for _, ring := range t.Bulk {
		_ = ring.Close()
	}
	if t.coll != nil {
		t.coll.Close()
	}
	t.removal.Wait()
}

// bulkRingBytes is the default size of a bulk ring: 8 MiB, which holds 50 ms at the highest rate of one CPU, but at
// most
// 256 MiB together. Each has at least 1 MiB, more than twice the records between two wake-ups.
func bulkRingBytes(cpus int) int {
	return min(8<<20, max(1<<20, 256<<20/cpus))
}

func ringSize(n int) uint32 {
	n = min(max(n, os.Getpagesize()), 1<<31)
	return uint32(1) << bits.Len32(uint32(n-1))
}

// explain adds the remedy to an error of Linux.
func explain(err error) error {
	var refused *ebpf.VerifierError
	byVerifier := errors.As(err, &refused) && !errors.Is(err, syscall.EPERM)
	if errors.Is(err, os.ErrPermission) && !byVerifier {
		return fmt.Errorf(
			"%w (run as root or with CAP_BPF and CAP_PERFMON; in a container also in its bounding set)", err,
		)
	}
	if errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.E2BIG) {
		return fmt.Errorf(
			"%w (no memory for a ring of that size: lower producer.control_ring_bytes or producer.bulk_ring_bytes)",
			err,
		)
	}
	if errors.Is(err, syscall.EMFILE) {
		return fmt.Errorf("%w (raise the limit of open files: LimitNOFILE of the service, or ulimit -n)", err)
	}
	if byVerifier || errors.Is(err, ebpf.ErrNotSupported) {
		return fmt.Errorf(
			"%w (gputap needs Linux 5.15 or later with BTF; this is %s on %s)", err, release(), runtime.GOARCH,
		)
	}
	return err
}

// spareFiles is the number of files that feature detection opens beside maps and programs.
const spareFiles = 16

// enoughFiles checks the limit of open files first, because feature detection that cannot open a file looks like a
// missing feature.
func enoughFiles(more int) error {
	var limit syscall.Rlimit
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil || syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return nil
	}
	if need := uint64(len(open) + more + spareFiles); need > limit.Cur {
		return fmt.Errorf("open %d files: the limit is %d: %w", need, limit.Cur, syscall.EMFILE)
	}
	return nil
}

func release() string {
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown"
	}
	return string(b[:len(b)-1])
}
