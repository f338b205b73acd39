package config

import (
	"strings"
	"testing"
)

func TestWrongLeakValuesNameTheirKey(t *testing.T) {
	t.Parallel()
	if err := DefaultLeak().Validate(); err != nil {
		t.Error(err)
	}
	for key, set := range map[string]func(*Leak){
		"leak.window":                          func(l *Leak) { l.Window = 1 },
		"leak.mode":                            func(l *Leak) { l.Mode = "on" },
		"leak.rules.leak_growth.mode":          func(l *Leak) { l.Rules.Growth.Mode = "default" },
		"leak.rules.unfreed_at_exit.mode":      func(l *Leak) { l.Rules.Unfreed.Mode = "" },
		"leak.rules.unfreed_at_exit.min_bytes": func(l *Leak) { l.Rules.Unfreed.MinBytes = 0 },
		"leak.exclude.user":                    func(l *Leak) { l.Exclude.User = []string{"["} },
		"leak.exclude.comm":                    func(l *Leak) { l.Exclude.Comm = []string{"alloc_size=x"} },
	} {
		l := DefaultLeak()
		set(&l)
		if err := l.Validate(); err == nil || !strings.HasPrefix(err.Error(), key+": ") {
			t.Errorf("%s: got %v", key, err)
		}
	}
}
