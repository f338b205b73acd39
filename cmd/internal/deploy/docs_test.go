package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gputap/gputap/config"
)

// TestSecurityPageNamesTheFiles: all of them, and no other.
func TestSecurityPageNamesTheFiles(t *testing.T) {
	data, err := os.ReadFile("../../../docs/security.md")
	check(t, err)
	var named, have []string
	for _, m := range regexp.MustCompile("`((?:jwt/)?[a-z-]+\\.(?:conf|json))`").FindAllStringSubmatch(string(data), -1) {
		named = append(named, m[1])
	}
	for _, pattern := range []string{"*.conf", "jwt/*"} {
		paths, err := filepath.Glob(files + pattern)
		check(t, err)
		for _, path := range paths {
			have = append(have, strings.TrimPrefix(filepath.ToSlash(path), files))
		}
	}
	slices.Sort(named)
	slices.Sort(have)
	if named = slices.Compact(named); !slices.Equal(named, have) {
		t.Errorf("docs/security.md names %q, deploy/nats has %q", named, have)
	}
}

// TestSecurityPageKeys: every key that the page names can be set.
func TestSecurityPageKeys(t *testing.T) {
	data, err := os.ReadFile("../../../docs/security.md")
	check(t, err)
	var printed strings.Builder
	check(t, config.Print(&printed, config.DefaultRunCommand()))
	check(t, config.Print(&printed, config.DefaultLeakCommand()))
	keys := regexp.MustCompile("`(?:nats|embedded)\\.([a-z_.]+)`").FindAllStringSubmatch(string(data), -1)
	if len(keys) < 8 {
		t.Fatalf("the page names %d keys", len(keys))
	}
	for _, m := range keys {
		if last := m[1][strings.LastIndexByte(m[1], '.')+1:]; last != "conf" && !strings.Contains(printed.String(), " "+last+": ") {
			t.Errorf("no key %s", m[0])
		}
	}
}

// TestSecurityPageCommands runs the page's clients against tls.conf, with its files where the page has them.
func TestSecurityPageCommands(t *testing.T) {
	data, err := os.ReadFile("../../../docs/security.md")
	check(t, err)
	_, section, _ := strings.Cut(string(data), "\n## Clients\n")
	_, block, _ := strings.Cut(section, "```sh\n")
	block, _, _ = strings.Cut(block, "```")
	seeds := newKeys(t)
	ours := newAuthority(t, "ours")
	ours.forServers("bus", time.Hour)
	address := strings.TrimPrefix(serve(t, files+"tls.conf").ClientURL(), "nats://")
	address = address[strings.LastIndexByte(address, '/')+1:]
	dir := build(t)
	ran := 0
	for line := range strings.Lines(block) {
		line = strings.NewReplacer("bus:4222", address, "ca.pem", ours.file,
			"admin.nk", seeds["admin"], "gpu-1.nk", seeds["gpu-1"], "leak.nk", seeds["leak"]).Replace(line)
		words := strings.Fields(line)
		until := map[string]string{
			"gputap": "streams are ready", "gputap-producer": "host: gpu-1", "gputap-leak": "python3",
		}[words[0]]
		switch words[0] {
		case "gputap-producer": // it would go on to probe this machine; TestRoles has its rights
			words = append(words, "--print-config")
		case "gputap-leak":
			_, host := join(t, "gpu-1", config.NATS{URL: "tls://" + address, NKeyFile: seeds["gpu-1"], TLS: config.TLS{CAFile: ours.file}}, quiet())
			publishBatches(t, host, 1, "gpu-1")
			words = append(words, "--metrics.addr", "", "--consumer.display_interval", "10ms")
		}
		out := says(t, until, nil, filepath.Join(dir, words[0]), words[1:]...)
		if strings.Contains(out, "refuse") || strings.Contains(out, "let us in") {
			t.Errorf("%s:\n%s", line, out)
		}
		ran++
	}
	if ran != 3 {
		t.Errorf("ran %d commands", ran)
	}
}
