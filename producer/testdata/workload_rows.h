// workload_rows.h: one call of each CUDA function, with arguments that tell each other apart, and what the caller knows
// of it as one line on stdout:
//
//	SYMBOL variant=… number=… pid=… tid=… comm=… from=… until=… device=… result=… KEY=VALUE…
//
// from and until are boot-time nanoseconds around the call, comm is the thread's name, device the ordinal of its current
// context. The other keys are in the call's own words: what a column of an event should hold is for the reader to say.
#ifndef GPUTAP_WORKLOAD_ROWS_H
#define GPUTAP_WORKLOAD_ROWS_H

#include "workload.h"

// The row that runs, in its own thread.
struct row {
	const char *symbol, *variant;
	bool fail; // the variant in which the stub refuses the call
	int number;
	int device; // of the thread's current context
	CUcontext context;
};
extern struct row row;

struct row_definition {
	const char *symbol, *variant;
	bool can_fail; // the call has a result that is seen
	void (*run)(void);
};

// ROW begins the body of a symbol's row; ROW_SEEN one whose result is seen, which runs once more and fails then;
// ROW_VARIANT another row of the symbol.
#define ROW_AS(symbol, variant, text, can_fail)                                                                        \
	static void row_##symbol##variant(void);                                                                       \
	static const struct row_definition def_##symbol##variant = { #symbol, text, can_fail, row_##symbol##variant }; \
	__attribute__((section("rows"), used)) static const struct row_definition *const at_##symbol##variant =        \
		&def_##symbol##variant;                                                                                \
	static void row_##symbol##variant(void)
#define ROW(symbol) ROW_AS(symbol, , "", false)
#define ROW_SEEN(symbol) ROW_AS(symbol, , "", true)
#define ROW_VARIANT(symbol, variant) ROW_AS(symbol, _##variant, #variant, false)

// value is a number of the row that has no zero byte and that no other row, and no other k, has; amount one of 33 to 36
// bits; place a fake address or handle.
uint64_t value(int k);
uint64_t amount(int k);
#define PLACE(type, k) ((type)(uintptr_t)value(k))

// CALL makes the call, between two looks at the clock. It ends the process when the result is not the expected one.
#define CALL(call)                                                                                                     \
	do {                                                                                                           \
		call_begins();                                                                                         \
		CUresult got = (call);                                                                                 \
		call_returned(got);                                                                                    \
	} while (0)
void call_begins(void);
void call_returned(CUresult got);

// What an out-parameter says: nothing when the call failed, whatever was there before.
#define OUT(x) (row.fail ? 0 : (unsigned long long)(uintptr_t)(x))
#define STALE 0x1badbadbadbadbadull

// say adds to the row's line.
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);
void say_token(const CUtoken *token);

// LATER makes another call whose event shows what this row did, and adds KEY_from= and KEY_until= to the line.
#define LATER(key, call)                                                                                               \
	do {                                                                                                           \
		uint64_t before = boot_ns();                                                                           \
		OK(call);                                                                                              \
		say(key "_from=%lu " key "_until=%lu ", before, boot_ns());                                            \
	} while (0)
uint64_t boot_ns(void);

// row_kernel is a kernel named after the row, from a library that the row need not care for.
CUfunction row_kernel(void);
CUfunction kernel_named(const char *name);
const char *row_kernel_name(void);
CUlibrary row_library(void);

// high_descriptor moves a file descriptor to a number that is not taken for something else.
int high_descriptor(int fd);

// BLOCK is what physical memory comes in.
#define BLOCK (2 * MB)

// row_context is the primary context of a device.
CUcontext row_context(int device);

#endif
