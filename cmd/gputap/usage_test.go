package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/config"
)

const root = "../.."

// rootCommand returns gputap with all its commands.
func rootCommand() *cobra.Command {
	c := &cobra.Command{Use: "gputap"}
	c.AddCommand(commands(&app.Process{})...)
	c.InitDefaultHelpCmd()
	c.InitDefaultCompletionCmd()
	return c
}

// leaves returns the commands that have no commands of their own, and those that do something by themselves.
func leaves(c *cobra.Command) (list []*cobra.Command) {
	if !c.HasSubCommands() {
		return []*cobra.Command{c}
	}
	if c.Flags().HasFlags() {
		list = append(list, c)
	}
	for _, below := range c.Commands() {
		list = append(list, leaves(below)...)
	}
	return list
}

// words returns the arguments that name a command.
func words(c *cobra.Command) []string { return strings.Fields(c.CommandPath())[1:] }

// programFlags returns the flags of the programs that read a file, by the names of config print.
func programFlags() map[string]*pflag.FlagSet {
	flags := map[string]*pflag.FlagSet{}
	for _, c := range configured() {
		flags[c.name] = pflag.NewFlagSet(c.name, pflag.ContinueOnError)
	}
	config.Flags(flags["producer"], config.DefaultProducerCommand())
	config.Flags(flags["run"], config.DefaultRunCommand())
	for _, f := range fold.All() {
		f.AddFlags(flags[f.Name()])
	}
	return flags
}

// TestBadFlagValuesEndWithStatus2 gives every flag of every command and program a value of another type.
func TestBadFlagValuesEndWithStatus2(t *testing.T) {
	t.Parallel()
	check := func(command []string, f *pflag.Flag) {
		if f.Value.Type() == "string" || f.Value.Type() == "stringSlice" || f.Value.Type() == "stringArray" {
			return
		}
		out, err := typed(t, append(slices.Clone(command), "--"+f.Name+"=bad")...)
		if app.ExitCode(err) != 2 || out != "" {
			t.Errorf("%v --%s=bad ends with status %d, %v, and writes %q", command, f.Name, app.ExitCode(err), err, out)
		}
	}
	for _, c := range leaves(rootCommand()) {
		if parent := c.Parent().Name(); parent == "completion" || c.Name() == "help" || c.DisableFlagParsing {
			continue
		}
		c.InheritedFlags() // merges them into Flags
		c.Flags().VisitAll(func(f *pflag.Flag) { check(words(c), f) })
	}
	for program, flags := range programFlags() {
		flags.VisitAll(func(f *pflag.Flag) { check([]string{"config", "print", program}, f) })
	}
}

// TestUnusableFlagValuesEndWithStatus2 is the table of values of the right type.
func TestUnusableFlagValuesEndWithStatus2(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"run --display-interval 0s", "run --for -1s", "run --rows -1", "run -o xml", "run --features memory,x",
		"run --metrics-addr", "run --store-max-bytes 1MiB", "run --filter.pid 0", "run --nats-listen 0.0.0.0:1",
		"run --config /no/such/file", "run leak3", "demo --scenario x", "demo --storm-seconds 0", "demo -o xml",
		"demo x", "doctor --for 0s", "doctor -o xml", "doctor --pid -1", "version -o xml", "version x",
		"simulate --connections 0", "simulate --hosts 0", "simulate --events-per-second 0", "simulate --batch-age 0s",
		"simulate --lose 1", "simulate --cluster=", "simulate --duration -1s", "simulate --resume", "simulate -o xml",
		"simulate --drain -1s", "simulate --nats.url=", "simulate --nats.url http://x",
		"simulate --profile /no/such/file --nats.url nats://127.0.0.1:1", "stream init --shards 0",
		"stream init --nats.url http://x", "stream info -o xml", "stream info --nats.tls.cert_file c",
		"stream dlq --last -1", "stream dlq --show 0", "stream dlq --raw", "stream dlq --yes",
		"stream rm --generation 0", "stream rm --fold a --generation 1", "stream rm --fold=", "config print",
		"config print x", "config print leak x", "config x", "config print leak --consumer.shard -2",
		"config print leak --leak.keep_ended -1s", "config print launch --launch.max_kernels 0",
		"config print anomaly --anomaly.warmup -1s", "config print bandwidth --bandwidth.keep -1s",
		"config print producer --producer.shards -1", "config print leak --consumer.from yesterday",
		"config print leak --log.level loud", "config print producer --outbox a", "nope", "help nope",
		"completion nope", "--nope",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			if _, err := typed(t, strings.Fields(line)...); app.ExitCode(err) != 2 {
				t.Errorf("ends with status %d, %v", app.ExitCode(err), err)
			}
		})
	}
}

// TestUnknownVariablesAreErrors sets a variable of no key. Variables without two underscores are not gputap's.
func TestUnknownVariablesAreErrors(t *testing.T) {
	t.Setenv("GPUTAP_LEAK_PORT", "tcp://10.0.0.1:80")
	t.Setenv("GPUTAP_LEAK_SERVICE_HOST", "10.0.0.1")
	for _, c := range configured() {
		if out, err := typed(t, "config", "print", c.name); err != nil {
			t.Errorf("config print %s: %v, %s", c.name, err, out)
		}
	}
	t.Setenv("GPUTAP_LEAK__PORT", "tcp://10.0.0.1:80")
	lines := []string{"run", "doctor", "simulate", "record -o x", "stream init", "stream info", "stream dlq",
		"stream rm"}
	for _, c := range configured() {
		lines = append(lines, "config print "+c.name)
	}
	for _, line := range lines {
		_, err := typed(t, strings.Fields(line)...)
		const want = "variable GPUTAP_LEAK__PORT: unknown key leak.port"
		if app.ExitCode(err) != 2 || !strings.Contains(err.Error(), want) {
			t.Errorf("%s ends with status %d, %v", line, app.ExitCode(err), err)
		}
	}
}

// literals calls see with every string literal of the Go files in a folder that are not tests.
func literals(t *testing.T, folder string, see func(file, text string)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				if text, err := strconv.Unquote(l.Value); err == nil {
					see(file, text)
				}
			}
			return true
		})
	}
}

var flagPattern = regexp.MustCompile(`--([a-z][a-z0-9._-]*[a-z0-9])`)

// streamInitFlags are flags of gputap stream init. Errors of package bus name them; gputap run adds its own remedy.
var streamInitFlags = []string{"max-bytes", "replicas", "shards", "generation", "fold"}

// TestTextsSuggestFlagsOfTheirProgram reads the string literals of the packages that a program contains. A flag in them
// is one of the program's own.
func TestTextsSuggestFlagsOfTheirProgram(t *testing.T) {
	t.Parallel()
	flags := programFlags()
	programs := map[string]*pflag.FlagSet{"gputap-producer": flags["producer"]}
	for _, f := range fold.All() {
		programs["gputap-"+f.Name()] = flags[f.Name()]
	}
	for program, own := range programs {
		for _, folder := range packagesOf(t, program) {
			if strings.HasSuffix(folder, "/config") { // usage.go and load.go have texts of all programs
				continue
			}
			literals(t, folder, func(file, text string) {
				for _, m := range flagPattern.FindAllStringSubmatch(text, -1) {
					name := m[1]
					ofStream := strings.Contains(folder, "/consumer") && slices.Contains(streamInitFlags, name)
					if own.Lookup(name) == nil && !ofStream && name != "version" && name != "help" {
						t.Errorf("%s: %q suggests --%s, which %s does not have", file, text, name, program)
					}
				}
			})
		}
	}
	all := map[string]bool{"version": true, "help": true}
	for _, name := range []string{"query-gpu", "format", "cuda-memory-usage", "cudabacktrace", "type"} {
		all[name] = true // of nvidia-smi and nsys
	}
	for _, set := range flags {
		set.VisitAll(func(f *pflag.Flag) { all[f.Name] = true })
	}
	for _, c := range leaves(rootCommand()) {
		c.InheritedFlags()
		c.Flags().VisitAll(func(f *pflag.Flag) { all[f.Name] = true })
	}
	for _, folder := range packagesOf(t, "gputap") {
		if strings.HasSuffix(folder, "/cmd/internal/demo") { // it types flags of the workload
			continue
		}
		literals(t, folder, func(file, text string) {
			for _, m := range flagPattern.FindAllStringSubmatch(text, -1) {
				if !all[m[1]] {
					t.Errorf("%s: %q names --%s, which no command has", file, text, m[1])
				}
			}
		})
	}
}

// packagesOf returns the folders of this module's packages in a program.
func packagesOf(t *testing.T, program string) (folders []string) {
	t.Helper()
	const module = "github.com/gputap/gputap/"
	packages, err := listPackages()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(packages) {
		if path, deps, _ := strings.Cut(strings.TrimSpace(line), " "); path == module+"cmd/"+program {
			for _, name := range append(strings.Fields(deps), path) {
				if folder, own := strings.CutPrefix(name, module); own {
					folders = append(folders, filepath.Join(root, folder))
				}
			}
		}
	}
	return folders
}

// listPackages lists the dependencies of every program, one program a line.
var listPackages = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Deps " "}}`, root+"/cmd/gputap...").Output()
	return string(out), err
})

var (
	// commandPattern finds commands in blocks, after an imperative and in quotes. Elsewhere gputap is a noun.
	commandPattern = regexp.MustCompile(`(?m)(?:^\s*(?:\$ )?(?:sudo )?(?:bin/)?|[` + "`" + `;|&] ?(?:sudo )?(?:bin/)?|\b(?:run|with|see|use|by) (?:sudo )?)gputap ([a-z]+)(?: ([a-z]+))?`)
	// alwaysCommand finds these wherever they stand.
	alwaysCommand = regexp.MustCompile(`\bgputap (stream|config) ([a-z]+)`)
	// verbs follow the noun.
	verbs = []string{
		"streams", "watches", "attached", "attaches", "runs", "can", "needs", "sees", "has", "is", "and", "does", "in",
		"to", "tracks", "finds", "saw", "simulation", "recording", "probes", "uses", "did", "cannot",
	}
)

var readableFiles = []string{".md", ".yaml", ".yml", ".json", ".service", ".conf", ".env"}

// TestTextsNameCommandsThatExist reads the string literals of all programs, the docs and the deployment files.
func TestTextsNameCommandsThatExist(t *testing.T) {
	t.Parallel()
	gputap := rootCommand()
	check := func(file, text string) {
		matches := commandPattern.FindAllStringSubmatch(text, -1)
		for _, m := range append(matches, alwaysCommand.FindAllStringSubmatch(text, -1)...) {
			if slices.Contains(verbs, m[1]) {
				continue
			}
			found, _, err := gputap.Find(m[1:2])
			if err != nil || found == gputap {
				t.Errorf("%s: %q: gputap has no command %s", file, m[0], m[1])
				continue
			}
			if !found.HasSubCommands() || m[2] == "" || m[1] != "stream" && m[1] != "config" {
				continue
			}
			if below, _, err := found.Find(m[2:3]); err != nil || below == found {
				t.Errorf("%s: %q: gputap %s has no command %s", file, m[0], m[1], m[2])
			}
		}
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata" || d.Name() == "bin" || d.Name() == "shared"):
			return filepath.SkipDir
		case d.IsDir():
			literals(t, path, check)
		case slices.Contains(readableFiles, filepath.Ext(path)):
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			check(path, string(text))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
