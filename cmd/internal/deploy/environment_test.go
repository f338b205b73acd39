package deploy

import (
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// environments holds the variables that the files of deploy/nats read, by the name of the test that set them. The files
// read the environment of the process, which tests cannot share while they run in parallel.
var environments = struct {
	sync.Mutex
	of map[string]map[string]string
}{of: map[string]map[string]string{}}

// setenv sets a variable for the files that this test and its subtests load.
func setenv(t *testing.T, name, value string) {
	t.Helper()
	environments.Lock()
	defer environments.Unlock()
	if environments.of[t.Name()] == nil {
		environments.of[t.Name()] = map[string]string{}
	}
	environments.of[t.Name()][name] = value
}

// getenv returns a variable of the test, or else of the test that it belongs to.
func getenv(t *testing.T, name string) string {
	environments.Lock()
	defer environments.Unlock()
	return variables(t.Name())[name]
}

// variables is called with the lock held.
func variables(test string) map[string]string {
	all := map[string]string{"GPUTAP_SERVER": "bus-1"}
	for i, r := range test + "/" {
		if r == '/' {
			for name, value := range environments.of[test[:i]] {
				all[name] = value
			}
		}
	}
	return all
}

// load reads a file of deploy/nats with the variables of the test. Address, store and disk are the test's.
func load(t *testing.T, path, store string, maxStore int64) *server.Options {
	t.Helper()
	environments.Lock()
	defer environments.Unlock()
	for name, value := range variables(t.Name()) {
		check(t, os.Setenv(name, value))
	}
	options, err := server.ProcessConfigFile(path)
	for _, entry := range os.Environ() { // a test that lacks a variable must not get another test's
		if name, _, _ := strings.Cut(entry, "="); variables(t.Name())[name] != "" {
			check(t, os.Unsetenv(name))
		}
	}
	check(t, err)
	options.Host, options.Port, options.StoreDir = "127.0.0.1", -1, store
	options.NoSigs, options.NoLog, options.JetStreamMaxStore = true, true, maxStore
	return options
}
