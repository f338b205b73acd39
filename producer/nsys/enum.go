package nsys

import (
	"context"
	"strings"

	"github.com/gputap/gputap/schema"
)

// enum is the labels of an enumeration.
type enum struct {
	words  map[int64]string
	absent string // the table, if the export does not have it
}

// word returns the label of a number; "": there is none.
func (e enum) word(v any) string {
	id, ok := v.(int64)
	if !ok {
		return ""
	}
	return e.words[id]
}

// enum reads the labels of an enumeration: numbers differ between versions. tables are its names, the newest first.
// Without one of them, numbers have the meaning that they had in all versions so far.
func (c *converter) enum(ctx context.Context, numbers []string, tables ...string) (enum, error) {
	words := map[int64]string{}
	for _, table := range tables {
		if !c.has(table, "id") || !c.has(table, "label") && !c.has(table, "name") {
			continue
		}
		err := c.each(ctx, table, "", nil, []string{"id", "label", "name"}, func(row []any) {
			if id, ok := row[0].(int64); ok {
				if words[id] = normal(text(row[1])); words[id] == "" {
					words[id] = normal(text(row[2]))
				}
			}
		})
		return enum{words: words}, err
	}
	c.miss(tables[0], "its numbers are taken for those of nsys 2022.1 to 2025.1")
	for i, w := range numbers {
		words[int64(i)] = w
	}
	return enum{words, tables[0]}, nil
}

// normal returns the words of a label, or of a name such as CUDA_MEMOPR_MEMORY_KIND_DEVICE_STATIC.
func normal(s string) string {
	s = strings.ToUpper(strings.TrimSpace(s))
	for _, prefix := range []string{
		"CUDA_MEMOPR_MEMORY_KIND_", "CUDA_DEV_MEM_EVENT_OPR_", "CUDA_DEV_MEM_EVENT_OPER_", "CUDA_MEMCPY_KIND_",
	} {
		s = strings.TrimPrefix(s, prefix)
	}
	return strings.NewReplacer("_", " ", "-", " ").Replace(s)
}

var kindNumbers = []string{
	"PAGEABLE", "PINNED", "DEVICE", "ARRAY", "MANAGED", "DEVICE STATIC", "MANAGED STATIC", "UNKNOWN",
}

func (c *converter) memoryKinds(ctx context.Context) (enum, error) {
	return c.enum(ctx, kindNumbers, "ENUM_CUDA_MEM_KIND", "ENUM_CUDA_MEMORY_KIND")
}

func (c *converter) memoryOps(ctx context.Context) (enum, error) {
	return c.enum(ctx, []string{"ALLOCATION", "DEALLOCATION"}, "ENUM_CUDA_DEV_MEM_EVENT_OPER",
		"ENUM_CUDA_MEMORY_OPER", "ENUM_CUDA_MEMORY_OPERATION")
}

func (c *converter) copyKinds(ctx context.Context) (enum, error) {
	return c.enum(ctx, []string{
		"UNKNOWN", "HTOD", "DTOH", "HTOA", "ATOH", "ATOA", "ATOD", "DTOA", "DTOD", "HTOH", "PTOP", "UVM HTOD",
		"UVM DTOH", "UVM DTOD",
	}, "ENUM_CUDA_MEMCPY_OPER")
}

// classOf returns the class of a memory kind, and whether the kind is known. Pageable memory has no class.
func classOf(kind string) (class schema.MemClass, known bool) {
	switch kind {
	case "PAGEABLE":
		return schema.ClassNone, true
	case "PINNED":
		return schema.ClassPinned, true
	case "DEVICE", "DEVICE STATIC":
		return schema.ClassDevice, true
	case "ARRAY":
		return schema.ClassArray, true
	case "MANAGED", "MANAGED STATIC":
		return schema.ClassManaged, true
	}
	return schema.ClassNone, false
}

// opOf returns the op of a memory operation, or OpUnknown.
func opOf(operation string) schema.Op {
	switch {
	case strings.HasPrefix(operation, "DEALLOC"), strings.HasPrefix(operation, "FREE"):
		return schema.OpFree
	case strings.HasPrefix(operation, "ALLOC"):
		return schema.OpAlloc
	}
	return schema.OpUnknown
}

// directionOf returns the direction of a copy, and whether the driver moved managed memory by itself.
func directionOf(kind string) (d schema.Direction, unified bool) {
	for _, prefix := range []string{"UVM ", "UNIFIED "} {
		if rest, found := strings.CutPrefix(kind, prefix); found {
			kind, unified = rest, true
		}
	}
	switch strings.ReplaceAll(kind, " ", "") {
	case "HTOD", "HTOA", "HOSTTODEVICE", "HOSTTOARRAY":
		d = schema.HtoD
	case "DTOH", "ATOH", "DEVICETOHOST", "ARRAYTOHOST":
		d = schema.DtoH
	case "DTOD", "ATOA", "ATOD", "DTOA", "DEVICETODEVICE", "ARRAYTOARRAY", "ARRAYTODEVICE", "DEVICETOARRAY":
		d = schema.DtoD
	case "HTOH", "HOSTTOHOST":
		d = schema.HtoH
	case "PTOP", "PEERTOPEER":
		d = schema.PtoP
	}
	return d, unified
}

// hostMemOf returns the host memory of a copy between memory of two kinds.
func hostMemOf(src, dst string) (m schema.HostMem) {
	for _, kind := range []string{src, dst} {
		switch kind {
		case "PAGEABLE":
			m = max(m, schema.HostMemPageable)
		case "PINNED", "MANAGED":
			m = max(m, schema.HostMemPinned)
		}
	}
	return m
}
