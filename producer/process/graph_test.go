package process

import (
	"maps"
	"slices"
	"testing"

	"github.com/gputap/gputap/bpf"
)

func TestGraphs(t *testing.T) {
	record := func(symbol string, r bpf.GraphRecord) *bpf.GraphRecord {
		r.Call = callID(t, symbol)
		return &r
	}
	begin := record("cuStreamBeginCapture_v2", bpf.GraphRecord{Head: bpf.Head{Capture: 1}, Made: 5})
	end := record("cuStreamEndCapture", bpf.GraphRecord{Head: bpf.Head{Capture: 1}, Made: 5, Graph: 100})
	kernel := func(graph, function uint64) *bpf.GraphRecord {
		return record("cuGraphAddKernelNode_v2", bpf.GraphRecord{Graph: graph, Func: function})
	}
	ready := record("cuGraphInstantiateWithFlags", bpf.GraphRecord{Made: 900, Graph: 100})
	tests := []struct {
		name    string
		late    bool
		records []*bpf.GraphRecord
		kernels map[uint64]uint32
		memory  []Block
		partial bool
	}{
		{"captured", false, []*bpf.GraphRecord{begin, end, ready}, map[uint64]uint32{7: 2}, nil, false},
		{"nodes", false, []*bpf.GraphRecord{kernel(100, 7), kernel(100, 8), kernel(100, 7), ready},
			map[uint64]uint32{7: 2, 8: 1}, nil, false},
		{"nodes of any type", false, []*bpf.GraphRecord{
			record("cuGraphAddNode", bpf.GraphRecord{Graph: 100, Made: nodeKernel, Func: 7}),
			record("cuGraphAddNode_v2", bpf.GraphRecord{Graph: 100, Made: nodeMemAlloc, Ptr: 1, Bytes: 2}),
			record("cuGraphAddNode_v2", bpf.GraphRecord{Graph: 100, Made: nodeMemFree, Ptr: 9}),
			record("cuGraphAddNode_v2", bpf.GraphRecord{Graph: 100, Made: 1}), ready,
		}, map[uint64]uint32{7: 1}, []Block{{Ptr: 1, Bytes: 2}, {Ptr: 9}}, false},
		{"a conditional node", false, []*bpf.GraphRecord{
			record("cuGraphAddNode", bpf.GraphRecord{Graph: 100, Made: nodeConditional}), ready,
		}, map[uint64]uint32{}, nil, true},
		{"a child", false, []*bpf.GraphRecord{
			kernel(200, 7), kernel(200, 7), kernel(100, 8), record("cuGraphAddChildGraphNode",
				bpf.GraphRecord{Graph: 100, Made: 200}), ready,
		}, map[uint64]uint32{7: 2, 8: 1}, nil, false},
		{"a clone does not change with its source", false, []*bpf.GraphRecord{
			kernel(200, 7), record("cuGraphClone", bpf.GraphRecord{Made: 100, Graph: 200}), kernel(200, 7), ready,
		}, map[uint64]uint32{7: 1}, nil, false},
		{"an executable graph does not change with its source", false,
			[]*bpf.GraphRecord{kernel(100, 7), ready, kernel(100, 7)}, map[uint64]uint32{7: 1}, nil, false},
		{"updated", false, []*bpf.GraphRecord{
			kernel(100, 7), ready, kernel(300, 8), record("cuGraphExecUpdate_v2",
				bpf.GraphRecord{Made: 900, Graph: 300}),
		}, map[uint64]uint32{8: 1}, nil, false},
		{"a reused handle", false, []*bpf.GraphRecord{
			kernel(100, 7), record("cuGraphDestroy", bpf.GraphRecord{Graph: 100}), kernel(100, 8), ready,
		}, map[uint64]uint32{8: 1}, nil, false},
		{"allocated and freed inside", false, []*bpf.GraphRecord{
			record("cuGraphAddMemAllocNode", bpf.GraphRecord{Graph: 100, Ptr: 1, Bytes: 2}),
			record("cuGraphAddMemFreeNode", bpf.GraphRecord{Graph: 100, Ptr: 1}), ready,
		}, map[uint64]uint32{}, []Block{{Ptr: 1, Bytes: 2}, {Ptr: 1}}, false},
		{"an address that comes twice", false, []*bpf.GraphRecord{
			record("cuGraphAddMemAllocNode", bpf.GraphRecord{Graph: 100, Ptr: 1, Bytes: 2}),
			record("cuGraphAddMemFreeNode", bpf.GraphRecord{Graph: 100, Ptr: 1}),
			record("cuGraphAddMemAllocNode", bpf.GraphRecord{Graph: 100, Ptr: 1, Bytes: 3, Func: 1}), ready,
		}, map[uint64]uint32{}, []Block{{Ptr: 1, Bytes: 2}, {Ptr: 1}, {Ptr: 1, Bytes: 3, Device: 1}}, false},
		{"allocated and kept", false, []*bpf.GraphRecord{
			record("cuGraphAddMemAllocNode", bpf.GraphRecord{Graph: 100, Ptr: 1, Bytes: 2}), ready,
		}, map[uint64]uint32{}, []Block{{Ptr: 1, Bytes: 2}}, false},
		{"never seen", false, nil, nil, nil, true},
		{"of a graph from before gputap", true, []*bpf.GraphRecord{ready}, map[uint64]uint32{}, nil, true},
		{"the begin was lost", false, []*bpf.GraphRecord{end, ready}, map[uint64]uint32{}, nil, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newGraphs(tt.late, &budget{})
			for _, r := range tt.records {
				g.apply(r)
				if r == begin {
					g.recorded(1).Kernels[7] += 2
				}
			}
			e := g.Executable(900)
			if !maps.Equal(e.Kernels, tt.kernels) || !slices.Equal(e.Memory, tt.memory) || e.Partial != tt.partial {
				t.Errorf("got %+v", e.Graph)
			}
		})
	}
}
