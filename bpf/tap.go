package bpf

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// LostCauses is the number of loss counters, which have the order of schema.Loss.
const LostCauses = 6

// cpu mirrors struct cpu of maps.h.
type cpu struct {
	Lost             [LostCauses]uint64
	BulkSinceWake    uint32
	ControlSinceWake uint32
	TensorsSinceWake uint32
	_                uint32
}

// Tap holds the loaded programs and their rings. One goroutine at a time calls its methods.
type Tap struct {
	Control *ebpf.Map
	Bulk    []*ebpf.Map // one per group of CPUs
	Tensors *ebpf.Map   // of one page unless tensors are wanted
	coll    *ebpf.Collection
	links   []link.Link // of the process tracepoints; the garbage collector closes links without a reference
	perCPU  []cpu
	multi   bool           // attach with uprobe_multi, else with a perf event per address
	removal sync.WaitGroup // of perf events
}

// Load loads the programs into Linux, for uprobe_multi or for perf events. All rings together have at most ringBytes;
// without tensors they have one page more. Fewer than MinRingBytes are for tests, which fill the rings. A process that
// maps the rings has twice that much memory resident, because Linux maps the data of each ring twice.
func Load(ringBytes int, tensors, multi bool, filter Filter) (*Tap, error) {
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
	rings := divide(ringBytes, cpus, tensors)
	if err := enoughFiles(rings.bulkRings + len(spec.Maps) + len(spec.Programs)); err != nil {
		return nil, fmt.Errorf("load programs: %w", explain(err))
	}
	if !multi {
		forPerfEvents(spec)
	}
	t := &Tap{multi: multi}
	if err := t.addRings(spec, rings); err != nil {
		t.Close()
		return nil, err
	}
	if t.coll, err = ebpf.NewCollection(spec); err != nil {
		t.Close()
		return nil, fmt.Errorf("load programs: %w", explain(err))
	}
	t.Control, t.Tensors = t.coll.Maps[TapMapControl], t.coll.Maps[TapMapTensors]
	t.perCPU = make([]cpu, cpus)
	return t, nil
}

// addRings creates the bulk rings and sets the ring of each CPU in the programs.
func (t *Tap) addRings(spec *ebpf.CollectionSpec, rings division) error {
	for i := range rings.bulkRings {
		ring, err := ebpf.NewMap(&ebpf.MapSpec{Name: "bulk_ring", Type: ebpf.RingBuf, MaxEntries: uint32(rings.bulk)})
		if err != nil {
			return fmt.Errorf("create bulk ring %d of %d, %d bytes: %w", i+1, rings.bulkRings, rings.bulk, explain(err))
		}
		t.Bulk = append(t.Bulk, ring)
	}
	bulk := spec.Maps[TapMapBulk]
	bulk.MaxEntries = uint32(rings.cpus)
	bulk.InnerMap.MaxEntries = uint32(rings.bulk)
	for cpu := range rings.cpus {
		bulk.Contents = append(bulk.Contents, ebpf.MapKV{Key: uint32(cpu), Value: t.Bulk[rings.ringOf(cpu)]})
	}
	spec.Maps[TapMapControl].MaxEntries = uint32(rings.control)
	spec.Maps[TapMapTensors].MaxEntries = uint32(rings.tensors)
	err1 := spec.Variables[TapVarBulkWakeEvery].Set(rings.wakeEvery())
	err2 := spec.Variables[TapVarTensorWakeEvery].Set(rings.tensorWakeEvery())
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("set the number of records between wake-ups: %w", err)
	}
	return nil
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

// explain adds the remedy to an error of Linux.
func explain(err error) error {
	var refused *ebpf.VerifierError
	byVerifier := errors.As(err, &refused) && !errors.Is(err, syscall.EPERM)
	remedy := ""
	switch {
	case errors.Is(err, os.ErrPermission) && !byVerifier:
		remedy = "run as root or with CAP_BPF and CAP_PERFMON; in a container also in its bounding set"
	case errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.E2BIG):
		remedy = "no memory for a ring of that size: lower producer.ring_bytes"
	case errors.Is(err, syscall.EMFILE):
		remedy = "raise the limit of open files: LimitNOFILE of the service, or ulimit -n"
	case byVerifier, errors.Is(err, ebpf.ErrNotSupported):
		remedy = fmt.Sprintf("gputap needs Linux 5.15 or later with BTF; this is %s on %s", Release(), runtime.GOARCH)
	default:
		return err
	}
	return fmt.Errorf("%w (%s)", err, remedy)
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

// Release returns the release of the running Linux; "" when it is unknown.
func Release() string {
	var name unix.Utsname
	_ = unix.Uname(&name) // it fails only for a bad pointer
	return unix.ByteSliceToString(name.Release[:])
}
