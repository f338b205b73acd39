// stub.c: the clock and the switches of the stub.
#include <time.h>

#include "stub_internal.h"

__thread CUresult next_refusal;

uint64_t boot_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_BOOTTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// Spins for the last 200 µs, because a sleep may end late.
void wait_until(uint64_t instant)
{
	enum { SPIN_NS = 200000 };
	uint64_t now = boot_ns();
	if (instant > now + SPIN_NS) {
		uint64_t wake = instant - SPIN_NS;
		struct timespec t = { .tv_sec = (time_t)(wake / 1000000000u), .tv_nsec = (long)(wake % 1000000000u) };
		clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &t, NULL);
	}
	while (boot_ns() < instant)
		;
}

API void stubNop(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e)
{
	(void)a, (void)b, (void)c, (void)d, (void)e;
	keep_frame();
}

API void stubRefuseNext(int code)
{
	keep_frame();
	next_refusal = code;
}
