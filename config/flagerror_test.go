package config

import (
	"errors"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func TestFlagErrorNamesFlagValueAndRemedy(t *testing.T) {
	t.Parallel()
	flags := pflag.NewFlagSet("x", pflag.ContinueOnError)
	flags.IntP("limit", "l", 0, "")
	flags.Uint64("show", 0, "")
	flags.Float64("lose", 0, "")
	flags.Bool("once", false, "")
	flags.Duration("timeout", time.Second, "")
	flags.Var(new(Bytes), "max-bytes", "")
	for arg, want := range map[string]string{
		"--limit=x":                    `--limit "x": expected a whole number`,
		"-l=1.5":                       `--limit "1.5": expected a whole number`,
		"--limit=99999999999999999999": `--limit "99999999999999999999": the number is out of range`,
		"--show=-1":                    `--show "-1": expected a whole number of 0 or more`,
		"--lose=much":                  `--lose "much": expected a number`,
		"--once=maybe":                 `--once "maybe": expected true or false`,
		"--timeout=5":                  `--timeout "5": expected a number with a unit, such as 5s, 10m or 1h`,
		"--max-bytes=many": `--max-bytes: "many" is not a number of bytes; ` +
			`use 107374182400, 100GiB or 64GB`,
		"--limit":    "--limit: no value given",
		"--no-limit": "unknown flag: --no-limit",
	} {
		if err := FlagError(flags.Parse([]string{arg})); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", arg, err, want)
		}
	}
	if other := errors.New("x"); !errors.Is(FlagError(other), other) || FlagError(nil) != nil {
		t.Error("it replaces an error that is not about a flag")
	}
}
