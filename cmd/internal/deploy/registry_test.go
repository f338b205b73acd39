package deploy

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/consumer/consumertest"
)

// perFold matches, in each file, the text of the first fold and then those of the others.
var perFold = map[string]*regexp.Regexp{
	"roles.conf":      regexp.MustCompile(`(?s)(# gputap-leak: .*?\n\}\n\n)(?:# gputap-[a-z]+: .*?\n\}\n\n)*`),
	"users-nkey.conf": regexp.MustCompile(`([^\n]*permissions: \$LEAK \}\n)(?:[^\n]*permissions: \$[A-Z]+ \}\n)*`),
	"users-cert.conf": regexp.MustCompile(`([^\n]*permissions: \$LEAK \}\n)(?:[^\n]*permissions: \$[A-Z]+ \}\n)*`),
}

// TestEachFoldHasItsRole holds the files to the registry: every fold has the text of the first one, and anomaly one
// subject more. The flag
// -update writes the files.
func TestEachFoldHasItsRole(t *testing.T) {
	t.Parallel()
	for name, pattern := range perFold {
		path := "../../../deploy/nats/" + name
		text, err := os.ReadFile(path)
		check(t, err)
		found := pattern.FindSubmatch(text)
		if found == nil {
			t.Fatalf("%s says nothing of gputap-leak", name)
		}
		all := ""
		for _, fold := range fold.Names() {
			role := strings.NewReplacer("leak", fold, "LEAK", strings.ToUpper(fold)).Replace(string(found[1]))
			if fold == "anomaly" { // it alone publishes summaries of ranks
				alerts := "\"gputap.v1.out.alert.anomaly.>\"\n"
				role = strings.Replace(role, alerts, alerts+"      \"gputap.v1.ev.*.*.*.rank\"\n", 1)
			}
			all += role
		}
		consumertest.GoldenFile(t, path, bytes.Replace(text, found[0], []byte(all), 1))
	}
}
