// workload_rows.h: one call of each CUDA function, with distinct arguments. Each row describes its call on stdout:
//
//	SYMBOL variant=… number=… pid=… tid=… comm=… from=… until=… device=… result=… KEY=VALUE…
//
// from and until are boot-time nanoseconds around the call, comm is the thread's name, device the ordinal of its
// current context. The other keys are the call's arguments and results, from which the test derives the columns.
#ifndef GPUTAP_WORKLOAD_ROWS_H
#define GPUTAP_WORKLOAD_ROWS_H

#include "workload.h"

// The row that is running, in its own thread.
struct row {
	const char *symbol, *variant;
	bool fail; // the variant in which the stub fails the call
	int number;
	int device; // of the thread's current context
	CUcontext context;
};
extern struct row row;

struct row_definition {
	const char *symbol, *variant;
	bool can_fail; // the result of the call is traced
	void (*run)(void);
};

// ROW begins the body of a symbol's row. ROW_SEEN begins one whose result is traced; it runs a second time and fails
// then. ROW_VARIANT begins another row of the symbol.
#define ROW_AS(symbol, variant, text, can_fail)                                                                        \
	static void row_##symbol##variant(void);                                                                       \
	static const struct row_definition def_##symbol##variant = { #symbol, text, can_fail, row_##symbol##variant }; \
	__attribute__((section("rows"), used)) static const struct row_definition *const at_##symbol##variant =        \
		&def_##symbol##variant;                                                                                \
	static void row_##symbol##variant(void)
#define ROW(symbol) ROW_AS(symbol, , "", false)
#define ROW_SEEN(symbol) ROW_AS(symbol, , "", true)
#define ROW_VARIANT(symbol, variant) ROW_AS(symbol, _##variant, #variant, false)

// value returns a number that is unique to the row and k, without a zero byte. amount returns one of 33 to 36 bits.
// place returns a fake address or handle.
uint64_t value(int k);
uint64_t amount(int k);
#define PLACE(type, k) ((type)(uintptr_t)value(k))

// CALL makes the call and reads the clock before and after it. It ends the process if the result is unexpected.
#define CALL(call)                                                                                                     \
	do {                                                                                                           \
		call_begins();                                                                                         \
		CUresult got = (call);                                                                                 \
		call_returned(got);                                                                                    \
	} while (0)
void call_begins(void);
void call_returned(CUresult got);

// The value of an out-parameter: 0 if the call failed.
#define OUT(x) (row.fail ? 0 : (unsigned long long)(uintptr_t)(x))
#define STALE 0x1badbadbadbadbadull

// say appends to the row's line.
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);
void say_token(const CUtoken *token);

// LATER makes another call whose event shows the effect of this row, and adds KEY_from= and KEY_until= to the line.
#define LATER(key, call)                                                                                               \
	do {                                                                                                           \
		uint64_t before = boot_ns();                                                                           \
		OK(call);                                                                                              \
		say(key "_from=%lu " key "_until=%lu ", before, boot_ns());                                            \
	} while (0)
uint64_t boot_ns(void);

// row_kernel returns a kernel named after the row, from a library that it loads itself.
CUfunction row_kernel(void);
CUfunction kernel_named(const char *name);
const char *row_kernel_name(void);
CUlibrary row_library(void);

// high_descriptor moves a file descriptor to a high number, which cannot be confused with other values.
int high_descriptor(int fd);

// BLOCK is the granularity of physical memory.
#define BLOCK (2 * MB)

// row_context returns the primary context of a device.
CUcontext row_context(int device);

#endif
