// torch.h: the interface of the stub libc10.so, a small caching allocator that reports its blocks as PyTorch's does.
//
// Tests compare gputap with the log of its reports, so no code of gputap counts them.
#ifndef GPUTAP_TORCH_H
#define GPUTAP_TORCH_H

#include <stdint.h>

enum { TORCH_DEVICES = 2 };

// One block of the allocator.
struct torch_block {
	uint64_t ptr;
	uint64_t bytes;
	int device;
	struct torch_block *next; // in the list of free blocks
};

// One report. Reports of one device are in the order in which the allocator made them.
struct torch_report {
	uint64_t ptr;
	int64_t bytes;      // negative: the allocator took the block back
	uint64_t allocated; // totals of the device after it
	uint64_t reserved;
	int32_t device;
	uint32_t tid;
};

// torchBegin makes room for the log. segment gets driver memory on a device and returns its address.
void torchBegin(uint64_t (*segment)(int device, uint64_t bytes), uint64_t most_reports);

// torchAlloc hands out a block of at least so many bytes, rounded as PyTorch rounds. torchFree takes it back and keeps
// its memory.
struct torch_block *torchAlloc(int device, uint64_t bytes);
void torchFree(struct torch_block *block);

// torchLog returns the reports so far.
const struct torch_report *torchLog(uint64_t *reports);

#endif
