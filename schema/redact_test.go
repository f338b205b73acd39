package schema_test

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/gputap/gputap/schema"
)

// secret returns a pseudonym that shows what it stands for.
func secret(what schema.Private, s string) string {
	return "<" + what.String() + " " + strings.ToUpper(s) + ">"
}

func same(_ schema.Private, s string) string { return s }

// TestRedact compares redacted golden messages with their batches: only private strings differ.
func TestRedact(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.golden")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	kinds := map[schema.Kind]bool{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var before, want, got schema.Batch
		d := schema.NewDecoder()
		redacted, err := d.Redact([]byte("x"), data, &before, secret)
		if d.Decode(data, &want) != nil || want.Kind == schema.KindNone {
			if err == nil {
				t.Errorf("%s: an unknown kind is redacted", file)
			}
			continue
		}
		if err != nil || redacted[0] != 'x' {
			t.Fatalf("%s: %v", file, err)
		}
		if err := schema.NewDecoder().Decode(redacted[1:], &got); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		rename(&want)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: redacted it is\n%+v, want\n%+v", file, got, want)
		}
		kinds[want.Kind] = true
		if again, err := d.Redact(nil, data, &before, same); err == nil && !strings.Contains(file, "newer") {
			if !bytes.Equal(again, data) {
				t.Errorf("%s: with the same names it differs", file)
			}
		}
	}
	if len(kinds) < 6 {
		t.Errorf("only the kinds %v were redacted", kinds)
	}
}

// rename replaces the private strings of a batch.
func rename(b *schema.Batch) {
	replace := func(what schema.Private, s *string) {
		if *s != "" {
			*s = secret(what, *s)
		}
	}
	host := schema.PrivateHost
	if b.Kind == schema.KindRank {
		host = schema.PrivateJob
	}
	replace(schema.PrivateCluster, &b.Cluster)
	replace(host, &b.Host)
	replace(schema.PrivateHost, &b.Origin)
	for i := range b.Processes {
		p := &b.Processes[i]
		replace(schema.PrivatePath, &p.Exe)
		replace(schema.PrivateContainer, &p.Container)
		replace(schema.PrivateUser, &p.User)
		replace(schema.PrivatePath, &p.Cgroup)
		replace(schema.PrivatePod, &p.Pod)
		replace(schema.PrivateUnit, &p.Unit)
		replace(schema.PrivateJob, &p.Job)
	}
	for i := range b.Stacks {
		for j, frame := range b.Stacks[i].Frames {
			if function, module, found := strings.Cut(strings.TrimSuffix(frame, ")"), " ("); found {
				b.Stacks[i].Frames[j] = function + " (" + secret(schema.PrivatePath, module) + ")"
			}
		}
	}
	for i := range b.Libraries {
		replace(schema.PrivatePath, &b.Libraries[i].Path)
	}
}

// TestRedactFrames replaces the modules of call stacks. Functions stay.
func TestRedactFrames(t *testing.T) {
	t.Parallel()
	h := schema.Header{Cluster: "c", Host: "h", BootID: "b", Run: 1, Seq: 1}
	builder := schema.NewBuilder(schema.KindMemory)
	builder.Stack(schema.Stack{Name: "weights", Frames: []string{
		"f(int) (/home/ada/lib.so)", "main (/usr/bin/train (deleted))", "g(float)", "h()", "k ()", "m (/a)b)",
	}})
	var b, got schema.Batch
	data, err := schema.NewDecoder().Redact(nil, builder.Encode(&h), &b, secret)
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.NewDecoder().Decode(data, &got); err != nil {
		t.Fatal(err)
	}
	want := []string{"f(int) (<path /HOME/ADA/LIB.SO>)", "main (<path /USR/BIN/TRAIN (DELETED)>)", "g(float)", "h()",
		"k ()", "m (<path /A)B>)"}
	if !slices.Equal(got.Stacks[0].Frames, want) || got.Stacks[0].Name != "weights" {
		t.Errorf("%q, want %q", got.Stacks, want)
	}
}

// TestEveryTextIsJudged fails for a new text field until it is known to be private or not.
func TestEveryTextIsJudged(t *testing.T) {
	t.Parallel()
	private := []string{
		"procs.exe", "procs.container", "procs.user", "procs.cgroup", "procs.pod", "procs.unit", "procs.job",
		"libs.path", "stacks.frames",
	}
	shown := []string{
		"procs.comm", "threads.comm", "gpus.uuid", "gpus.model", "gpus.bus", "calls.symbol", "calls.op", "calls.class",
		"calls.direction", "funcs.name", "ends.kind", "graphs.nodes", "libs.absent", "libs.failed", "cover.outside",
		"stacks.name",
	}
	for _, d := range schema.Dictionaries {
		for _, f := range d.Fields {
			name := d.Key + "." + f.Name
			text := f.Content == schema.ContentText || f.Content == schema.ContentList
			if text && !slices.Contains(private, name) && !slices.Contains(shown, name) {
				t.Errorf("%s: add it to privateFields in redact.go, or to this test", name)
			}
		}
	}
}

// TestRedactRemovesUnknown removes what a newer version added, because it may be private.
func TestRedactRemovesUnknown(t *testing.T) {
	t.Parallel()
	h := schema.Header{Cluster: "c", Host: "h", BootID: "b", Run: 1, Seq: 1}
	builder := schema.NewBuilder(schema.KindMemory)
	builder.Process(schema.Process{PID: 7, Comm: "comm", User: "ada"})
	var envelope map[string]any
	if err := msgpack.Unmarshal(builder.Encode(&h), &envelope); err != nil {
		t.Fatal(err)
	}
	envelope["owner"] = map[string]any{"name": "Lovelace"}
	row := envelope["procs"].([]any)[0].([]any)
	envelope["procs"] = []any{append(row, "Lovelace", []any{"Lovelace"})}
	data, err := msgpack.Marshal(envelope)
	if err != nil {
		t.Fatal(err)
	}
	var b, got schema.Batch
	redacted, err := schema.NewDecoder().Redact(nil, data, &b, secret)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(redacted, []byte("Lovelace")) || bytes.Contains(redacted, []byte("ada")) {
		t.Errorf("names are left in %q", redacted)
	}
	if err := schema.NewDecoder().Decode(redacted, &got); err != nil || got.Processes[0].User != "<user ADA>" ||
		got.Processes[0].Comm != "comm" || b.Processes[0].User != "ada" {
		t.Errorf("%v: %+v", err, got.Processes)
	}
}

// FuzzRedact gives hostile messages: what Redact accepts, Decode accepts too.
func FuzzRedact(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.golden")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var b, got schema.Batch
		redacted, err := schema.NewDecoder().Redact(nil, data, &b, func(schema.Private, string) string { return "x" })
		if err != nil {
			return
		}
		if err := schema.NewDecoder().Decode(redacted, &got); err != nil {
			t.Fatalf("%v: %x", err, redacted)
		}
		if b.Events != got.Events || len(b.Processes) != len(got.Processes) || b.Seq != got.Seq {
			t.Errorf("%+v, want %+v", got.Header, b.Header)
		}
	})
}
