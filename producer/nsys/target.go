package nsys

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/gputap/gputap/schema"
)

// target is what an export says about the machine and its processes.
type target struct {
	host, schema, boot string
	session            time.Time
	processes          map[uint32]schema.Process // by pid
	threads            map[uint64]string         // names, by global thread id
	cards              map[int64]schema.GPU      // by the export's number of the card
	devices            map[device]int64          // card of a device of a process
}

// device is an ordinal in the numbering of one process.
type device struct{ pid, ordinal uint32 }

// mostRows bounds how many processes, threads and devices are read.
const mostRows = 1 << 16

func (c *converter) readTarget(ctx context.Context) (t target, err error) {
	t = target{
		processes: map[uint32]schema.Process{}, threads: map[uint64]string{}, cards: map[int64]schema.GPU{},
		devices: map[device]int64{},
	}
	for _, read := range []func(context.Context, *database) error{
		t.readSession, t.readHost, t.readSchema, t.readProcesses, t.readThreads, t.readCards, t.readDevices,
	} {
		if err := read(ctx, c.database); err != nil {
			return t, err
		}
	}
	hash := sha256.Sum256(fmt.Appendf(nil, "nsight %d %d", t.offset(), c.bytes))
	t.boot = "nsight-" + hex.EncodeToString(hash[:8])
	return t, nil
}

// offset returns the clock offset of the batches: 0 if the start of the session is unknown.
func (t *target) offset() int64 {
	if t.session.IsZero() {
		return 0
	}
	return t.session.UnixNano()
}

// each calls see with the columns of every row of a table; see keeps nothing. Without the needed columns it notes that
// the table is absent.
func (d *database) each(ctx context.Context, table, effect string, needed, columns []string,
	see func(row []any)) error {
	if !d.has(table, needed...) {
		d.miss(table, effect)
		return nil
	}
	return d.query(ctx, fmt.Sprintf("SELECT %s FROM %s t LIMIT %d", d.columns(table, "t", columns...), table, mostRows),
		see)
}

// query calls see with every row of a query; see keeps nothing.
func (d *database) query(ctx context.Context, query string, see func(row []any)) error {
	f, err := newFeed(ctx, d, query)
	if err != nil {
		return err
	}
	defer f.close()
	for f.rows.Next() {
		if err := f.rows.Scan(f.into...); err != nil {
			return err
		}
		see(f.row)
	}
	return f.rows.Err()
}

func (t *target) readSession(ctx context.Context, d *database) error {
	const column = "utcEpochNs"
	return d.each(ctx, "TARGET_INFO_SESSION_START_TIME", "times count from 1970", []string{column}, []string{column},
		func(row []any) {
			if ns, ok := number(row[0]); ok && ns > 0 && t.session.IsZero() {
				t.session = time.Unix(0, int64(ns)).UTC()
			}
		})
}

func (t *target) readHost(ctx context.Context, d *database) error {
	columns := []string{"name", "value"}
	return d.each(ctx, "TARGET_INFO_SYSTEM_ENV", `the host is called "nsight"`, columns, columns, func(row []any) {
		if text(row[0]) == "Hostname" && t.host == "" {
			t.host = text(row[1])
		}
	})
}

func (t *target) readSchema(ctx context.Context, d *database) error {
	columns := []string{"name", "value"}
	return d.each(ctx, "META_DATA_EXPORT", "the version of the export is unknown", columns, columns, func(row []any) {
		if text(row[0]) == "EXPORT_SCHEMA_VERSION" {
			t.schema = text(row[1])
		}
	})
}

func (t *target) readProcesses(ctx context.Context, d *database) error {
	columns := []string{"globalPid", "name"}
	return d.each(ctx, "PROCESSES", "processes have no names", columns, columns, func(row []any) {
		pid, name := pidOf(bits(row[0])), text(row[1])
		p := schema.Process{PID: pid, Comm: path.Base(name)}
		switch {
		case name == "":
			return
		case strings.HasPrefix(name, "/"):
			p.Exe = name
		}
		t.processes[pid] = p
	})
}

func (t *target) readThreads(ctx context.Context, d *database) error {
	const table = "ThreadNames"
	if !d.has(table, "nameId", "globalTid") {
		d.miss(table, "threads have no names")
		return nil
	}
	query := "SELECT t.globalTid, s.value FROM %s t JOIN StringIds s ON s.id = t.nameId LIMIT %d"
	return d.query(ctx, fmt.Sprintf(query, table, mostRows), func(row []any) {
		t.threads[bits(row[0])] = text(row[1])
	})
}

func (t *target) readCards(ctx context.Context, d *database) error {
	return d.each(ctx, "TARGET_INFO_GPU", "GPUs have no UUIDs", []string{"id"},
		[]string{"id", "uuid", "name", "busLocation", "totalMemory"}, func(row []any) {
			if id, ok := row[0].(int64); ok {
				bytes, _ := number(row[4])
				t.cards[id] = schema.GPU{UUID: uuid(text(row[1])), Name: text(row[2]), Bus: text(row[3]), Bytes: bytes}
			}
		})
}

// readDevices reads which card each process calls 0, 1, …: CUDA_VISIBLE_DEVICES changes it.
func (t *target) readDevices(ctx context.Context, d *database) error {
	const table = "TARGET_INFO_CUDA_DEVICE"
	columns := []string{"gpuId", "cudaId", "pid"}
	return d.each(ctx, table, "GPUs have no UUIDs", columns, append(columns, "uuid"), func(row []any) {
		id, ok := row[0].(int64)
		ordinal, named := number(row[1])
		if !ok || !named || ordinal >= mostRows {
			return
		}
		if u := uuid(text(row[3])); u != "" {
			g := t.cards[id]
			g.UUID = u
			t.cards[id] = g
		}
		if pid, ok := number(row[2]); ok && pid > 0 {
			t.devices[device{uint32(pid), uint32(ordinal)}] = id
		}
	})
}

// gpu returns a device of a process: a card with a UUID if the export maps this device of this process, else
// only the ordinal: CUDA_VISIBLE_DEVICES may differ between processes.
func (t *target) gpu(pid, ordinal uint32) schema.GPU {
	id, known := t.devices[device{pid, ordinal}]
	g := schema.GPU{Ordinal: ordinal}
	if card, ok := t.cards[id]; known && ok {
		g.UUID, g.Bytes = card.UUID, card.Bytes
	}
	return g
}

// uuid returns a UUID as nvidia-smi prints it.
func uuid(s string) string {
	s = strings.ToLower(strings.TrimSpace(s))
	switch {
	case s == "":
		return ""
	case strings.HasPrefix(s, "gpu-"), strings.HasPrefix(s, "mig-"):
		return strings.ToUpper(s[:4]) + s[4:]
	}
	return "GPU-" + s
}
