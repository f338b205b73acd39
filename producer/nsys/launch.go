package nsys

import (
	"context"
	"fmt"

	"github.com/gputap/gputap/schema"
)

// Columns of the query of kernels.
const (
	kerStart = iota
	kerProcess
	kerDevice
	kerStream
	kerMangled
	kerDemangled
	kerShort
	kerGrid  // 3 columns
	kerBlock = kerGrid + 3
	kerBytes = kerBlock + 3
	kerNode  = kerBytes + 1
)

// Symbols of events whose calls an export does not name, as nsys prints them.
const (
	symbolKernel = "[CUDA kernel]"
	symbolNode   = "[CUDA graph kernel]"
	symbolSet    = "[CUDA memset]"
)

func openKernels(ctx context.Context, c *converter) (*feed, error) {
	if err := c.need(kernelTable, "start"); err != nil {
		return nil, err
	}
	columns := c.columns(kernelTable, "k", "start", "globalPid", "deviceId", "streamId", "mangledName", "demangledName",
		"shortName", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "dynamicSharedMemory", "graphNodeId")
	f, err := newFeed(ctx, c.database, fmt.Sprintf("SELECT %s FROM %s k ORDER BY k.start", columns, kernelTable))
	if err != nil {
		return nil, err
	}
	f.usable = func([]any) bool { return true }
	f.add = c.addKernel
	return f, nil
}

// addKernel adds a kernel that ran on a GPU.
func (c *converter) addKernel(row []any) (schema.Kind, error) {
	b := c.out.open[schema.KindLaunch]
	function, err := c.function(row)
	if err != nil {
		return 0, err
	}
	call := schema.CallRef{Symbol: symbolKernel, Op: schema.OpLaunch}
	if bits(row[kerNode]) != 0 {
		call.Symbol = symbolNode
	}
	shape := schema.LaunchShape{Call: b.Call(call), Func: b.Func(function), SharedBytes: small(row[kerBytes])}
	for i := range 3 {
		shape.Grid[i], shape.Block[i] = small(row[kerGrid+i]), small(row[kerBlock+i])
	}
	global := bits(row[kerProcess])
	b.AddLaunch(&schema.Launch{
		Time: schema.KTime(bits(row[kerStart])), Thread: b.thread(global), GPU: b.gpu(pidOf(global), row[kerDevice]),
		Shape: b.Shape(shape), CUDAStream: b.CUDAStream(bits(row[kerStream])),
	})
	return schema.KindLaunch, nil
}

// function returns the kernel with its mangled name, or the best one that the export has.
func (c *converter) function(row []any) (f schema.Func, err error) {
	for _, id := range row[kerMangled : kerShort+1] {
		if f.Name, err = c.names.of(id); err != nil || f.Name != "" {
			f.Handle = bits(id)
			return f, err
		}
	}
	return f, nil
}
