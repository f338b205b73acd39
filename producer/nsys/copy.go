package nsys

import (
	"context"
	"fmt"

	"github.com/gputap/gputap/schema"
)

// Columns of the queries of copies and sets.
const (
	copStart = iota
	copEnd
	copProcess
	copDevice
	copStream
	copBytes
	copKind
	copSrc
	copDst
)

// copies adds copies.
type copies struct {
	*converter
	copyKinds, kinds enum
}

func openCopies(ctx context.Context, c *converter) (f *feed, err error) {
	m := &copies{converter: c}
	if m.copyKinds, err = c.copyKinds(ctx); err != nil {
		return nil, err
	}
	if m.kinds, err = c.memoryKinds(ctx); err != nil {
		return nil, err
	}
	return c.openMoves(ctx, copyTable, func(row []any) (schema.CallRef, schema.HostMem) {
		direction, unified := directionOf(m.copyKinds.word(row[copKind]))
		call := schema.CallRef{Op: schema.OpCopy, Direction: direction}
		if call.Symbol = "[CUDA memcpy " + direction.String() + "]"; unified {
			call.Symbol = "[CUDA Unified Memory memcpy " + direction.String() + "]"
		}
		return call, hostMemOf(m.kinds.word(row[copSrc]), m.kinds.word(row[copDst]))
	})
}

func openSets(ctx context.Context, c *converter) (*feed, error) {
	call := schema.CallRef{Symbol: symbolSet, Op: schema.OpSet}
	return c.openMoves(ctx, setTable, func([]any) (schema.CallRef, schema.HostMem) {
		return call, schema.HostMemUnknown
	})
}

// openMoves reads copies or sets.
func (c *converter) openMoves(ctx context.Context, table string, of func(row []any) (schema.CallRef, schema.HostMem)) (
	*feed, error) {
	if err := c.need(table, "start", "end", "bytes"); err != nil {
		return nil, err
	}
	columns := c.columns(table, "m", "start", "end", "globalPid", "deviceId", "streamId", "bytes", "copyKind",
		"srcKind", "dstKind")
	f, err := newFeed(ctx, c.database, fmt.Sprintf("SELECT %s FROM %s m ORDER BY m.start", columns, table))
	if err != nil {
		return nil, err
	}
	f.size = copBytes
	f.usable = func(row []any) bool {
		end, ok := number(row[copEnd])
		_, bytes := number(row[copBytes])
		return ok && bytes && end >= bits(row[copStart])
	}
	f.add = func(row []any) (schema.Kind, error) {
		b := c.out.open[schema.KindCopy]
		call, hostMem := of(row)
		global, start := bits(row[copProcess]), bits(row[copStart])
		b.AddCopy(&schema.Copy{
			Time: schema.KTime(start), Duration: bits(row[copEnd]) - start, Thread: b.thread(global),
			Call: b.Call(call), GPU: b.gpu(pidOf(global), row[copDevice]), Bytes: bits(row[copBytes]),
			CUDAStream: b.CUDAStream(bits(row[copStream])), HostMem: hostMem,
		})
		return schema.KindCopy, nil
	}
	return f, nil
}
