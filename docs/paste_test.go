package docs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gputap/gputap/consumer/bus/bustest"
)

// skipped are the commands that TestPaste does not run, by their text, with the reason.
var skipped = []struct{ pattern, reason string }{
	{`^sudo make demo`, "takes minutes; .ci/run runs it"},
	{`^make (test|test-soak|test-bpf)$`, "runs this test"},
	{`^make test\s+#`, "runs this test"},
	{`^make test-chaos`, "takes minutes; .ci/run runs it"},
	{`^(sudo )?make (bench|bench-scale)\b`, "takes minutes"},
	{`^sudo go run ./cmd/internal/harness/bench|^go test .*-bench`, "takes minutes"},
	{`^(make stub && |sudo )?(go run|taskset .*) ?.*/scale\b`, "takes minutes and 16 CPUs"},
	{`^tar -xzf bin/scale.tar.gz`, "unpacks for a machine of 16 CPUs"},
	{`^make test-(outage|old-linux)`, "needs qemu"},
	{`^bin/tools/oldlinux`, "needs qemu"},
	{`^make test-gpu|^(sudo )?python3 producer/testdata/gpu/|verdicts\.py`, "needs a GPU"},
	{`^sudo bin/gputap run -- python train.py`, "needs a GPU"},
	{`^sudo bin/gputap doctor --pid "\$\(pgrep`, "needs a GPU"},
}

// endless are the commands that run until they are stopped: a reader gives each its own terminal.
var endless = regexp.MustCompile(`^(sudo )?(\w+=\S+\s+(\\\s+)?)*(bin/)?` +
	`(nats-server\b|prometheus\b|gputap-\w+|gputap run\b|` +
	`gputap stream dlq .*--follow|gputap simulate\b|gputap record --|python3 examples/follow.py\b|bin/quota\b)`)

// prometheus are the commands that need Debian's package of that name.
var prometheus = regexp.MustCompile(`^(prometheus|promtool)\b|127\.0\.0\.1:9090`)

// ending are the ways in which those end by themselves.
var ending = regexp.MustCompile(`--for\b|--duration\b|--until\b|--help\b|--version\b|--print-config\b| -- |\||^(sudo )?timeout\b`)

// repeatable are the commands that change nothing: they run again until their output is the one shown.
var repeatable = regexp.MustCompile(`^(sudo )?(\w+=\S+ )*(bin/)?` +
	`(curl\b|gputap stream (info|dlq)\b|gputap (get|describe|status|top)\b|gputap doctor\b)`)

// shortened are durations that a measurement needs, each with one that is enough to test the command.
var shortened = []string{
	"run --for 15s", "run --for 3s", "sleep 10;", "sleep 1;", "--threads 4 --seconds 20", "--threads 4 --seconds 1",
}

const patience = time.Minute // for an output or a start; a command itself may take four times as long

// TestPaste runs every command of a page in a copy of the checkout, in the order of the page. Pages with sudo run with
// the build tag bpf, the others without it.
func TestPaste(t *testing.T) {
	if privileged && os.Geteuid() != 0 {
		if os.Getenv("GPUTAP_REQUIRE_BPF") != "" {
			t.Fatal("needs root")
		}
		t.Skip("needs root")
	}
	all := pages(t)
	for _, s := range skipped {
		pattern, used := regexp.MustCompile(s.pattern), false
		for _, p := range all {
			for _, c := range p.commands {
				used = used || pattern.MatchString(c.text)
			}
		}
		if !used {
			t.Errorf("no page has a command that matches %q: remove it from the list", s.pattern)
		}
	}
	checkout := newCheckout(t)
	t.Run("flags", func(t *testing.T) { checkFlags(t, filepath.Join(checkout, "bin")) })
	for _, p := range all {
		if len(p.commands) == 0 || privileged != p.needsRoot() {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			if !privileged {
				t.Parallel() // probes see the programs of every page
			}
			paste(t, p, checkout)
		})
	}
}

// newCheckout copies the tree without bin and builds the copy.
func newCheckout(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(dir, strings.TrimPrefix(path, root))
		switch {
		case entry.Name() == ".git" || path == filepath.Join(root, "bin"):
			if entry.IsDir() {
				return filepath.SkipDir
			}
			return nil
		case entry.IsDir():
			return os.MkdirAll(to, 0o755)
		}
		return copyFile(path, to)
	}); err != nil {
		t.Fatal(err)
	}
	if built := os.Getenv("GPUTAP_BIN"); built != "" {
		copyPrograms(t, built, filepath.Join(dir, "bin"))
	}
	writeGoEnv(t, filepath.Join(dir, goEnv))
	build := exec.Command("make", "build", "stub")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("make build stub: %v\n%s", err, out)
	}
	return dir
}

const goEnv = "bin/go.env" // the reader's settings of Go, in the checkout

// writeGoEnv adds the build flags of make test to the settings of this machine: the programs of a page are then in the
// build cache. They are not in the variable GOFLAGS, because the Makefile reads that.
func writeGoEnv(t *testing.T, path string) {
	t.Helper()
	out, err := exec.Command("go", "env", "GOENV", "GOFLAGS").Output()
	if err != nil {
		t.Fatal(err)
	}
	file, flags, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	settings, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	settings = fmt.Appendf(settings, "\nGOFLAGS=%s -trimpath -vet=off '-ldflags=-s -w'\n", flags)
	err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, settings, 0o644))
	if err != nil {
		t.Fatal(err)
	}
}

// copyPrograms copies built programs: make links a program only if its source has changed. The workload must be newer
// than the stub.
func copyPrograms(t *testing.T, from, to string) {
	t.Helper()
	for _, pattern := range []string{"gputap*", "stub/*.so*", "stub/*/*.so", "workload"} {
		files, err := filepath.Glob(filepath.Join(from, pattern))
		for _, file := range files {
			copied := filepath.Join(to, strings.TrimPrefix(file, from))
			err = errors.Join(err, os.MkdirAll(filepath.Dir(copied), 0o755), copyFile(file, copied))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func copyFile(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, info.Mode().Perm())
}

// paste runs the commands of one page in one shell.
func paste(t *testing.T, p page, checkout string) {
	sh := newShell(t, p, checkout)
	var started []int
	for i, c := range p.commands {
		if reason := skipReason(c); reason != "" {
			t.Logf("%s:%d: not run, %s: %s", p.name, c.line, reason, c.text)
			continue
		}
		if endless.MatchString(c.text) && !ending.MatchString(c.text) && !strings.HasSuffix(c.text, "&") {
			sh.start(i, c)
			started = append(started, i)
		} else {
			sh.run(i, c)
		}
	}
	for len(started) > 0 {
		last := started[len(started)-1]
		started = started[:len(started)-1]
		sh.stop(last, p.commands[last])
	}
}

func (p page) needsRoot() bool {
	return slices.ContainsFunc(p.commands, func(c command) bool {
		return skipReason(c) == "" && regexp.MustCompile(`\bsudo\b`).MatchString(c.text)
	})
}

func skipReason(c command) string {
	_, err := exec.LookPath("prometheus")
	if err != nil && prometheus.MatchString(c.text) && os.Getenv("GPUTAP_REQUIRE_PROMTOOL") == "" {
		return "needs Debian's package prometheus"
	}
	for _, s := range skipped {
		if regexp.MustCompile(s.pattern).MatchString(c.text) {
			return s.reason
		}
	}
	return ""
}

// shell is the reader's: one process of bash for a page, so that variables and background jobs stay.
type shell struct {
	t       *testing.T
	page    string
	dir     string            // replaces /tmp and the like
	replace *strings.Replacer // of the page's ports and paths
	back    *strings.Replacer
	stdin   io.Writer
	lines   chan string // one for each command: its number, and its exit status or process ID
	pids    map[int]string
}

func newShell(t *testing.T, p page, checkout string) *shell {
	t.Helper()
	sh := &shell{t: t, page: p.name, dir: t.TempDir(), lines: make(chan string), pids: map[int]string{}}
	var there, back []string
	for _, path := range []string{"/tmp/", "/var/lib/gputap/", "/etc/gputap/"} {
		own := filepath.Join(sh.dir, path) + "/"
		if err := os.MkdirAll(own, 0o755); err != nil {
			t.Fatal(err)
		}
		there, back = append(there, path, own), append(back, own, path)
	}
	for _, c := range append(p.commands, command{text: "127.0.0.1:4222"}) {
		for _, address := range regexp.MustCompile(`127\.0\.0\.1:\d+`).FindAllString(c.text, -1) {
			own := fmt.Sprint("127.0.0.1:", bustest.Port(t))
			there, back = append(there, address, own), append(back, own, address)
		}
	}
	sh.replace, sh.back = strings.NewReplacer(append(there, shortened...)...), strings.NewReplacer(back...)

	programs := filepath.Join(sh.dir, "programs")
	self, err := os.Executable()
	if err == nil {
		err = os.Mkdir(programs, 0o755)
	}
	if err == nil {
		err = os.Symlink(self, filepath.Join(programs, "nats-server"))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(programs, "sudo"), []byte("#!/bin/sh\nexec \"$@\"\n"), 0o755)
	}
	if python, lookErr := exec.LookPath("/usr/bin/python3"); err == nil && lookErr == nil {
		err = os.Symlink(python, filepath.Join(programs, "python3")) // another one may be a slow script
	}
	if err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	bash := exec.Command("bash", "--noprofile", "--norc")
	bash.Dir = checkout
	bash.ExtraFiles = []*os.File{write}
	bash.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "GPUTAP_") {
			bash.Env = append(bash.Env, variable)
		}
	}
	path := strings.Join([]string{programs, filepath.Join(checkout, "bin"), os.Getenv("PATH")}, ":")
	bash.Env = append(bash.Env, "PATH="+path, "GOENV="+filepath.Join(checkout, goEnv),
		"GPUTAP_METRICS__ADDR=127.0.0.1:0", "DOCS_SERVER="+sh.replace.Replace("127.0.0.1:4222"), "DOCS_DIR="+sh.dir)
	if sh.stdin, err = bash.StdinPipe(); err == nil {
		bash.Stderr = os.Stderr
		err = bash.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	go func() {
		defer close(sh.lines)
		for scanner := bufio.NewScanner(read); scanner.Scan(); {
			sh.lines <- scanner.Text()
		}
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-bash.Process.Pid, syscall.SIGKILL) // background jobs of the page, too
		_ = bash.Wait()
		_ = read.Close()
		for range sh.lines {
		}
	})
	return sh
}

// run runs a command to its end, which must be successful, and compares its output with the one shown.
func (sh *shell) run(i int, c command) {
	sh.t.Helper()
	until := time.Now().Add(patience)
	for {
		status := sh.do(i, "{\n%s\n} >%[2]s 2>&1 </dev/null 3>&-; echo %[3]d $? >&3",
			sh.replace.Replace(c.text), sh.file(i), i)
		line, differs := missing(c.shown, sh.output(i))
		if status == "0" && !differs {
			return
		}
		if !repeatable.MatchString(c.text) || time.Now().After(until) {
			if status != "0" {
				sh.t.Fatalf("%s:%d: %s: exit status %s\n%s", sh.page, c.line, c.text, status, sh.output(i))
			}
			sh.differs(i, c, line)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (sh *shell) differs(i int, c command, line string) {
	sh.t.Helper()
	sh.t.Errorf("%s:%d: %s: the page shows\n%s\nwhich the output does not have:\n%s", sh.page, c.line, c.text, line,
		sh.output(i))
}

// start starts a command that does not end by itself, and waits for its first output, or for the shown lines.
// A command may say nothing for its first second; whether it failed then, stop finds out.
func (sh *shell) start(i int, c command) {
	sh.t.Helper()
	sh.pids[i] = sh.do(i, "( exec env %s\n) >%[2]s 2>&1 </dev/null 3>&- & echo %[3]d $! >&3",
		sh.replace.Replace(c.text), sh.file(i), i)
	began := time.Now()
	for until := began.Add(patience); ; time.Sleep(20 * time.Millisecond) {
		line, differs := missing(c.shown, sh.output(i))
		if !differs && (sh.output(i) != "" || time.Since(began) > time.Second) {
			return
		}
		if time.Now().After(until) {
			sh.differs(i, c, line)
			return
		}
	}
}

// stop ends a command that start started; it must neither have failed nor have logged an error.
func (sh *shell) stop(i int, c command) {
	sh.t.Helper()
	if status := sh.do(i, "kill -TERM %s; wait %[1]s; echo %[2]d $? >&3", sh.pids[i], i); status != "0" {
		sh.t.Errorf("%s:%d: %s: exit status %s\n%s", sh.page, c.line, c.text, status, sh.output(i))
	}
	if strings.Contains(sh.output(i), `"level":"ERROR"`) {
		sh.t.Errorf("%s:%d: %s:\n%s", sh.page, c.line, c.text, sh.output(i))
	}
}

// do sends a line to the shell and returns the status that it reports for command i.
func (sh *shell) do(i int, format string, args ...any) string {
	sh.t.Helper()
	if _, err := fmt.Fprintf(sh.stdin, format+"\n", args...); err != nil && !errors.Is(err, syscall.EPIPE) {
		sh.t.Fatal(err)
	}
	select {
	case line := <-sh.lines:
		if rest, ok := strings.CutPrefix(line, fmt.Sprintf("%d ", i)); ok {
			return rest
		}
		sh.t.Fatalf("%s: the shell ended:\n%s", sh.page, sh.output(i))
	case <-time.After(4 * patience):
		sh.t.Fatalf("%s: a command takes longer than %v:\n%s", sh.page, 4*patience, sh.output(i))
	}
	return ""
}

func (sh *shell) file(i int) string { return filepath.Join(sh.dir, fmt.Sprintf("output-%d", i)) }

func (sh *shell) output(i int) string {
	data, _ := os.ReadFile(sh.file(i))
	return sh.back.Replace(string(data))
}
