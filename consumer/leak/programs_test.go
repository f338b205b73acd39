package leak

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/trend"
	"github.com/gputap/gputap/schema"
)

const long = 90 * time.Minute

// leaks are programs that never free a part of their memory. Each is Growing after at most so many minutes and Suspect
// after at most so many; 0: never, because it leaks too little.
var leaks = []struct {
	name             string
	growing, suspect int
	tid              uint32 // the thread that leaks; 0: many
	run              func(s *simulation)
}{
	{"1 MiB per minute", 30, 0, 9, func(s *simulation) {
		s.load()
		s.every(time.Minute, long, func(int) { s.alloc(9, mib) })
	}},
	{"256 KiB every 15 seconds, without other work", 30, 0, 9, func(s *simulation) {
		s.until(long, func() { s.alloc(9, 256*kib); s.sleep(15 * time.Second) })
	}},
	{"16 MiB every 30 seconds", 30, 40, 9, func(s *simulation) {
		s.load()
		s.every(30*time.Second, long, func(int) { s.alloc(9, 16*mib) })
	}},
	{"bursts of 300 MiB every five minutes", 35, 45, 9, func(s *simulation) {
		s.load()
		s.every(5*time.Minute, long, func(int) { s.allocs(9, 30, 10*mib, time.Second) })
	}},
	{"requests that sometimes keep their result", 35, 45, 0, func(s *simulation) {
		s.load()
		s.every(10*time.Second, long, func(int) {
			if s.rng.IntN(3) == 0 {
				s.alloc(20+s.rng.Uint32N(8), (1+s.rng.Uint64N(16))*mib)
			}
		})
	}},
	{"every new thread keeps a workspace", 30, 40, 0, func(s *simulation) {
		s.load()
		s.every(40*time.Second, long, func(n int) { s.alloc(uint32(100+n), 10*mib) })
	}},
	{"training that keeps a tensor of each epoch", 30, 40, 3, func(s *simulation) {
		s.load()
		s.every(2*time.Minute, long, func(int) { s.alloc(3, 64*mib) })
	}},
	{"validation phases", 35, 50, 9, func(s *simulation) {
		s.load()
		s.every(time.Minute, long, func(n int) {
			s.alloc(9, 20*mib)
			if n%12 == 0 {
				phase := s.allocs(2, 10, 512*mib, time.Second)
				s.sleep(150 * time.Second)
				s.free(phase...)
			}
		})
	}},
	{"checkpoint bursts", 30, 40, 9, func(s *simulation) {
		s.load()
		s.every(time.Minute, long, func(n int) {
			s.alloc(9, 20*mib)
			if n%15 == 0 {
				burst := s.allocs(2, 8, gib, 10*time.Second)
				s.sleep(20 * time.Second)
				s.free(burst...)
			}
		})
	}},
	{"begins after 40 minutes", 65, 75, 9, func(s *simulation) {
		s.load()
		s.until(40*time.Minute, s.work)
		s.every(time.Minute, long, func(int) { s.alloc(9, 30*mib) })
	}},
	{"accelerates", 30, 45, 9, func(s *simulation) {
		s.load()
		s.every(time.Minute, long, func(n int) { s.alloc(9, uint64(n)*mib) })
	}},
	{"model reloads", 35, 60, 9, func(s *simulation) {
		model := s.load()
		s.every(time.Minute, long, func(n int) {
			s.alloc(9, 20*mib)
			if n%25 == 0 {
				old := model
				model = s.allocs(1, 40, 512*mib, 20*time.Second)
				s.free(old...)
			}
		})
	}},
	{"segments of a pool that is never trimmed", 40, 50, 9, func(s *simulation) {
		s.load()
		s.class = "cuMemAllocAsync"
		s.every(3*time.Minute, long, func(int) { s.alloc(9, 60*mib) })
	}},
	{"managed memory", 30, 40, 9, func(s *simulation) {
		s.load()
		s.every(time.Minute, long, func(int) {
			s.class = "cuMemAllocManaged"
			s.alloc(9, 32*mib)
			s.class = "cuMemAlloc_v2"
		})
	}},
	{"a noisy neighbour in the process", 40, 60, 9, func(s *simulation) {
		s.load()
		var held []uint64
		s.every(20*time.Second, long, func(int) {
			s.alloc(9, 10*mib)
			held = append(held, s.alloc(2, (1+s.rng.Uint64N(48))*mib))
			if len(held) > 6 {
				i := s.rng.IntN(len(held))
				s.free(held[i])
				held = slices.Delete(held, i, i+1)
			}
		})
	}},
}

// innocents are programs without a leak. None is ever Suspect. Those with grows may be Growing for a while.
var innocents = []struct {
	name  string
	grows bool
	run   func(s *simulation)
}{
	{"serves one model", false, func(s *simulation) { s.load(); s.until(long, s.work) }},
	{"loads weights and a KV cache", false, func(s *simulation) {
		s.allocs(1, 64, 20*mib, time.Minute)
		s.allocs(1, 32, 3*gib/2, time.Minute)
		s.until(long, s.work)
	}},
	{"loads a model for 12 minutes", false, func(s *simulation) {
		s.allocs(1, 150, 300*mib, 12*time.Minute)
		s.until(long, s.work)
	}},
	{"loads a model for 12 minutes after 20", false, func(s *simulation) {
		s.until(20*time.Minute, s.work)
		s.allocs(1, 150, 300*mib, 12*time.Minute)
		s.until(long, s.work)
	}},
	{"steps to a plateau", false, func(s *simulation) {
		s.load()
		s.until(40*time.Minute, s.work)
		s.alloc(1, 5*gib)
		s.until(long, s.work)
	}},
	{"loads three adapters, 8 minutes apart", false, func(s *simulation) {
		s.load()
		s.every(8*time.Minute, 30*time.Minute, func(int) { s.alloc(1, 2*gib) })
		s.until(long, s.work)
	}},
	{"a KV cache grows for 12 minutes to its limit", false, func(s *simulation) {
		s.load()
		s.every(10*time.Second, 14*time.Minute, func(int) { s.alloc(4, 512*mib) })
		s.until(long, s.work)
	}},
	{"a KV cache grows for 25 minutes to its limit", true, func(s *simulation) {
		s.load()
		s.until(10*time.Minute, s.work)
		s.every(10*time.Second, 35*time.Minute, func(int) { s.alloc(4, 256*mib) })
		s.until(long, s.work)
	}},
	{"a cache is reallocated larger every minute", false, func(s *simulation) {
		s.load()
		cache := s.alloc(4, 64*mib)
		s.every(time.Minute, long, func(n int) {
			old := cache
			cache = s.alloc(4, uint64(64+32*n)*mib)
			s.free(old)
		})
	}},
	{"a cache doubles every ten minutes", false, func(s *simulation) {
		s.load()
		cache := s.alloc(4, 64*mib)
		s.every(10*time.Minute, long, func(n int) {
			old := cache
			cache = s.alloc(4, 64*mib<<n)
			s.free(old)
		})
	}},
	{"validation phases", false, func(s *simulation) {
		s.load()
		s.every(20*time.Minute, long, func(int) {
			phase := s.allocs(2, 10, 512*mib, time.Second)
			s.sleep(4 * time.Minute)
			s.free(phase...)
		})
	}},
	{"checkpoint bursts", false, func(s *simulation) {
		s.load()
		s.every(15*time.Minute, long, func(int) {
			burst := s.allocs(2, 8, gib, 10*time.Second)
			s.sleep(20 * time.Second)
			s.free(burst...)
		})
	}},
	{"reloads its model every 25 minutes", false, func(s *simulation) {
		model := s.load()
		s.every(25*time.Minute, long, func(int) {
			old := model
			model = s.allocs(1, 44, 512*mib, 20*time.Second)
			s.free(old...)
		})
	}},
	{"an allocator that fragments until it fits", false, func(s *simulation) {
		s.load()
		s.every(time.Minute, long, func(n int) {
			s.alloc(5, uint64(2*float64(gib)*math.Exp(-float64(n)/6)))
		})
	}},
	{"results of an epoch are dropped after 15 minutes", false, func(s *simulation) {
		s.load()
		var results []uint64
		s.every(time.Minute, long, func(n int) {
			results = append(results, s.alloc(6, 100*mib))
			if n%15 == 0 {
				s.free(results...)
				results = nil
			}
		})
	}},
	{"load that doubles in half an hour", false, func(s *simulation) {
		s.load()
		var held []uint64
		s.until(long, func() {
			level := 30 + s.minutes()
			for len(held) > level {
				s.free(held[0])
				held = held[1:]
			}
			held = append(held, s.alloc(6, 64*mib))
			s.sleep(6 * time.Second)
		})
	}},
	{"an LRU cache fills and then replaces", false, func(s *simulation) {
		s.load()
		var cache []uint64
		s.every(10*time.Second, long, func(int) {
			cache = append(cache, s.alloc(4, 100*mib))
			if len(cache) > 60 {
				s.free(cache[0])
				cache = cache[1:]
			}
		})
	}},
	{"long requests come and go", true, func(s *simulation) {
		s.load()
		var held []uint64
		s.until(long, func() {
			if s.rng.IntN(200) < len(held) {
				i := s.rng.IntN(len(held))
				s.free(held[i])
				held = slices.Delete(held, i, i+1)
			} else if s.rng.IntN(2) == 0 {
				held = append(held, s.alloc(6, (1+s.rng.Uint64N(100))*mib))
			}
			s.sleep(3 * time.Second)
		})
	}},
	{"eleven threads get a workspace each", false, func(s *simulation) {
		s.load()
		s.every(time.Minute, 13*time.Minute, func(n int) { s.alloc(uint32(100+n), 32*mib) })
		s.until(long, s.work)
	}},
	{"kernels that are loaded on first use", true, func(s *simulation) {
		s.load()
		s.every(time.Minute, long, func(n int) {
			if s.rng.IntN(n) < 8 {
				s.alloc(1, mib)
			}
		})
	}},
	{"idle after the load", false, func(s *simulation) { s.load(); s.sleep(long) }},
}

func simulate(t *testing.T, run func(*simulation), check func(*simulation, trend.State)) *simulation {
	t.Helper()
	s := newSimulation(t, Config{})
	s.onWindow = func(s *simulation) { check(s, s.verdict(0).State) }
	run(s)
	s.sleep(heartbeat)
	return s
}

func TestLeaksAreFound(t *testing.T) {
	for _, leak := range leaks {
		t.Run(leak.name, func(t *testing.T) {
			t.Parallel()
			first := map[trend.State]int{}
			s := simulate(t, leak.run, func(s *simulation, state trend.State) {
				if _, seen := first[state]; !seen {
					first[state] = s.minutes()
				}
				if testing.Verbose() {
					t.Log(s)
				}
			})
			for state, most := range map[trend.State]int{trend.Growing: leak.growing, trend.Suspect: leak.suspect} {
				if at, seen := first[state]; seen != (most > 0) || at > most {
					t.Errorf("%s after %d minutes (%t), want at most %d", state, at, seen, most)
				}
			}
			v := s.verdict(0)
			if !v.State.Grows() || len(v.Groups) == 0 || leak.tid != 0 && v.Groups[0].TID != leak.tid {
				t.Errorf("at the end: %s", s)
			}
		})
	}
}

func TestInnocentsAreNot(t *testing.T) {
	for _, program := range innocents {
		t.Run(program.name, func(t *testing.T) {
			t.Parallel()
			s := simulate(t, program.run, func(s *simulation, state trend.State) {
				if state == trend.Suspect || state == trend.Growing && !program.grows {
					t.Error(s)
				}
				if testing.Verbose() {
					t.Log(s)
				}
			})
			if v := s.verdict(0); v.State != trend.Steady {
				t.Errorf("at the end: %s", s)
			}
		})
	}
}

func wall(at schema.KTime) time.Time { return time.Unix(0, 1_700_000_000e9+int64(at)).UTC() }
