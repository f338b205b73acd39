// Package trend judges whether memory grows without end. A Series keeps the lowest live bytes of each window of time,
// and the bytes that are still live by the window of their allocation. Judge turns it into a Verdict.
//
// # Windows
//
// Windows are aligned in the time of one host. The minimum of a window is the lowest level during it, the level at its
// start included. An allocation counts at its return, a free at its entry. Events of one window count in the order of
// their records, so a minimum may be too high by the bytes of calls that overlapped in time. An event of an earlier
// window corrects the minima of all later windows. It lowers the minimum of its own window only if that window is the
// last or the one before it. Windows in which events were lost are excluded (Gaps).
//
// # Rules
//
// Judge looks at the last 30 closed windows without the excluded ones. Fewer than 17 since the series began are
// Warming; fewer than 17 that count are Unknown. Then:
//
//  1. The floor of a window is the lowest minimum from that window on: the level to which memory never returned. So
//     phases that end and caches that are emptied are no growth.
//  2. The step from one floor to the next counts at most as much as the fourth largest step. So three loads of a model
//     are no growth, however large they are. A step across an excluded window counts nothing.
//  3. Growth began in the last window whose floor is the lowest. It must have lasted 17 windows.
//  4. Of all pairs of floors since then, 80 % must rise.
//  5. In the last quarter, floors must rise at least half as fast as before. So a ramp that ended is no growth.
//  6. Allocations that are older than a quarter of the time and still live must explain half of the growth; each window
//     counts at most as much as a step. So a buffer that is replaced by larger ones is no growth.
//
// A series that passes is Growing. It stays Growing while 70 % of the pairs rise and the last quarter rises at least an
// eighth as fast as before. It is Suspect if it has grown for 30 windows and by the limit that the caller gives. A
// cache that fills in fewer than 26 windows never is. Growth is the Theil–Sen slope summed over the time since it
// began.
//
// Where the caller asks for it (Residue), a series that fails is Growing if its survivors prove that it grows by less
// than it fluctuates: each of 28 windows left about as much memory behind, whatever its age, and the minima rise as
// fast. Such a series is Suspect only if it once passes the rules above.
//
// A series of levels without allocations (Set, Level) skips rule 6.
//
// Survivors groups the live allocations behind a verdict of growth by thread, class and size.
//
// # Cost
//
// Add and Remove take constant time and do not allocate. Judge takes about 10 µs and does not allocate. A Series takes
// 1.1 KiB. Its snapshot has the minima; the caller adds the live allocations again. Verdicts depend on nothing but the
// order of the calls. A Series is not safe for concurrent use.
package trend
