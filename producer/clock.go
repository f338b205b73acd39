package producer

import (
	"golang.org/x/sys/unix"

	"github.com/gputap/gputap/schema"
)

// bootTime returns the present time of the records' clock.
func bootTime() schema.KTime { return schema.KTime(nanoseconds(unix.CLOCK_BOOTTIME)) }

func nanoseconds(clock int32) int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(clock, &ts) // these clocks exist on every Linux that loads the programs
	return ts.Nano()
}

// clockOffset returns wall time minus boot time in ns. Of five samples it uses the one that took the shortest time.
func clockOffset() int64 {
	best, offset := int64(1)<<62, int64(0)
	for range 5 {
		before := nanoseconds(unix.CLOCK_BOOTTIME)
		wall := nanoseconds(unix.CLOCK_REALTIME)
		after := nanoseconds(unix.CLOCK_BOOTTIME)
		if after-before < best {
			best, offset = after-before, wall-(before+after)/2
		}
	}
	return offset
}
