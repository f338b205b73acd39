package process

import "github.com/gputap/gputap/schema"

// Index remembers the index of an entry in the dictionary of each kind's open batch, so that an event costs no
// dictionary look-up. The translation writes it; this package only clears it when the entry changes. A batch has a
// generation, which is never 0.
type Index [schema.NumKinds]struct {
	Generation uint64
	Index      uint32
}

// ThreadIndexes are the indexes that the translation keeps for one thread.
type ThreadIndexes struct {
	Thread Index

	// GPU is valid for one context and one version of the process's devices.
	GPU           Index
	GPUContext    uint64
	DeviceVersion uint32

	// Context is that of the last memory event.
	Context           schema.Context
	ContextGeneration uint64
	ContextIndex      uint32

	// CUDAStream is that of the last event which has one.
	CUDAStream  uint64
	CUDAStreams Index
}
