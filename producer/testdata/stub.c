// stub.c: the clock, and what is nobody's else.
#include <time.h>

#include "stub_internal.h"

__thread CUresult next_refusal;

uint64_t monotonic_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// The last 200 µs are spun, for a sleep wakes up late.
void wait_until(uint64_t monotonic)
{
	enum { SPIN_NS = 200000 };
	uint64_t now = monotonic_ns();
	if (monotonic > now + SPIN_NS) {
		uint64_t wake = monotonic - SPIN_NS;
		struct timespec t = { .tv_sec = (time_t)(wake / 1000000000u), .tv_nsec = (long)(wake % 1000000000u) };
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
	}
	while (monotonic_ns() < monotonic)
		;
}

API void stubNop(uint64_t a, uint64_t b, uint64_t c)
{
	(void)a, (void)b, (void)c;
	keep_frame();
}

API void stubRefuseNext(int code)
{
	keep_frame();
	next_refusal = code;
}
