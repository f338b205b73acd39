package library

import (
	"slices"
	"strings"
)

// queries begin the names of functions that neither work on memory nor submit work, among those that acting includes.
var queries = []string{
	"cuMemGet", "cuMemPoolGet", "cuMemPoolSet", "cuMemRange", "cuMemAdvise", "cuMemSetMemPool", "cuMemHostGet",
}

var acting = []string{
	"cuMem", "cuLaunch", "cuGraphLaunch", "cuGraphAdd", "cuArrayCreate", "cuArray3DCreate", "cuArrayDestroy",
	"cuMipmappedArrayCreate", "cuMipmappedArrayDestroy", "cuIpc", "cuImportExternalMemory", "cuMulticast",
	"cuCtxCreate", "cuCtxDestroy", "cuDevicePrimaryCtxRe",
}

// relevant reports whether a function of the driver works on memory or submits work: gputap claims to see those.
func relevant(name string) bool {
	begins := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
	return slices.ContainsFunc(acting, begins) && !slices.ContainsFunc(queries, begins)
}

// Lookup finds the exported function at an offset of a library file, "" when none begins there. known is false for a
// library that is not attached.
type Lookup func(library Inode, offset uint64) (symbol string, probed, known bool)

// Images are the executable mappings of driver libraries in one process.
type Images []Mapping

// ImagesOf reads the images of a process; none when it ended.
func ImagesOf(pid uint32) Images {
	libraries, _ := librariesOf(pid, pid)
	return slices.DeleteFunc(libraries, func(m Mapping) bool { return !m.executable || !m.driver() })
}

// Unseen names the function behind an address that a program asked for by name, when gputap does not see its calls. It
// returns "" for a function that is probed, irrelevant or in a library that is not attached.
func (images Images) Unseen(name string, address uint64, lookup Lookup) string {
	if !relevant(name) || address == 0 {
		return ""
	}
	for _, m := range images {
		if !m.contains(address) {
			continue
		}
		symbol, probed, known := lookup(m.Inode, address-m.Start+m.offset)
		switch {
		case !known || probed:
			return ""
		case symbol == "":
			return name + " (not exported)"
		}
		return symbol
	}
	return name + " (outside the driver)"
}
