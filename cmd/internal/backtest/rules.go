package backtest

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/config"
)

// Rules are the sections of gputap-anomaly and gputap-leak.
type Rules struct {
	Anomaly config.Anomaly `koanf:"anomaly"`
	Leak    config.Leak    `koanf:"leak"`
}

// Validate names the first key with a wrong value.
func (r Rules) Validate() error { return cmp.Or(r.Anomaly.Validate(), r.Leak.Validate()) }

const command = "gputap anomaly backtest"

// load returns the current rules, from the defaults and the variables, and the changed ones, which also have the keys
// of a file and of set. A variable overrides the file, and set overrides both.
func load(file string, set []string) (current, changed Rules, err error) {
	defaults := Rules{config.DefaultAnomaly(), config.DefaultLeak()}
	if current, err = config.Load(command, nil, defaults); err != nil {
		return current, changed, app.Usage(err)
	}
	var args []string
	if file != "" {
		args = append(args, "--config", file)
	}
	for _, one := range set {
		key, value, found := strings.Cut(one, "=")
		if !found {
			return current, changed, app.Usage(fmt.Errorf("--set %q: no value; use KEY=VALUE, such as %s", one,
				example))
		}
		if err := config.CheckKey(key); err != nil {
			return current, changed, app.Usage(fmt.Errorf("--set: %w", err))
		}
		if !strings.HasPrefix(key, "anomaly.") && !strings.HasPrefix(key, "leak.") {
			return current, changed, app.Usage(fmt.Errorf("--set %s: the rules have no such key; use a key of the "+
				"sections anomaly and leak", key))
		}
		args = append(args, "--"+key+"="+value)
	}
	if changed, err = config.Load(command, args, defaults); err != nil {
		return current, changed, app.Usage(err)
	}
	return current, changed, nil
}

const example = "anomaly.rules.alloc_rate.factor=3"
