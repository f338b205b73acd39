package analyze

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/consumer/consumertest"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// TestRowsOfTwoClusters: hosts of two clusters have one name, and their processes one PID. Each row tells them apart.
func TestRowsOfTwoClusters(t *testing.T) {
	t.Parallel()
	messages := movingHost(t, "gpu-7")
	for _, m := range slices.Clone(messages) {
		m.Data = bytes.Replace(m.Data, []byte("\xa4test"), []byte("\xa4prod"), 1)
		m.Subject = strings.Replace(m.Subject, ".test.", ".prod.", 1)
		m.Sequence += uint64(len(messages))
		messages = append(messages, m)
	}
	path := write(t, []recording.Stream{{State: recording.KnowledgeComplete}}, nil, messages)
	for _, name := range []string{"watermark", "leakage", "usage", "launches", "bandwidth"} {
		for _, form := range []string{"text", "csv"} {
			stdout, err := typed(t, name, path, "-o", form)
			check(t, err)
			prod, test := "\nprod/gpu-7 ", "\ntest/gpu-7 "
			if form == "csv" {
				prod, test = ",prod,2023-11-14T22:13:20.500000000Z\n", ",test,2023-11-14T22:13:20.500000000Z\n"
			}
			if n := strings.Count(stdout, prod); n == 0 || n != strings.Count(stdout, test) {
				t.Errorf("%s as %s:\n%s", name, form, stdout)
			}
			one, err := typed(t, name, path, "-o", form, "--cluster", "prod")
			check(t, err)
			if form == "text" && (strings.Contains(one, "prod/") || !strings.Contains(one, "\ngpu-7 ")) {
				t.Errorf("one cluster: %s as text:\n%s", name, one)
			}
		}
	}
}

// TestKeysOfGPUsDiffer: a process has a GPU twice, with other numbers. Every answer has both, under two keys.
func TestKeysOfGPUsDiffer(t *testing.T) {
	t.Parallel()
	h := consumertest.Memory(t, "gpu-7")
	p := h.Process(7, second/2, "train")
	for i := range uint32(2) {
		p.GPU = &schema.GPU{UUID: "GPU-\x01", Ordinal: i}
		p.Alloc(7, 0x100*(1+uint64(i)), 100, second, 0)
	}
	path := recordingOf(t, 1, nil, recording.Message{Sequence: 1, Stored: wallStart,
		Subject: schema.Subject(0, "test", "gpu-7", schema.KindMemory), Data: bytes.Clone(h.Message())})
	for _, args := range []string{"watermark", "leakage", "usage", "usage --by class"} {
		stdout, err := typed(t, append(strings.Fields(args), path, "-o", "json")...)
		check(t, err)
		var o struct {
			Processes []struct{ GPUs map[string]any }
		}
		if err := json.Unmarshal([]byte(stdout), &o); err != nil || len(o.Processes) != 1 ||
			len(o.Processes[0].GPUs) != 2 {
			t.Errorf("%s: %v in\n%s", args, err, stdout)
		}
	}
}

// TestConditionsWithoutALimit are refused, as other wrong flags.
func TestConditionsWithoutALimit(t *testing.T) {
	t.Parallel()
	for _, limit := range []string{"NaN", "inf", "1e30", "20000000TiB", "-1"} {
		if _, err := typed(t, "watermark", pytorch, "--fail-on", "leak>"+limit); app.ExitCode(err) != 2 {
			t.Errorf("%s: %v", limit, err)
		}
	}
}

// TestSizesOfPictures: sizes that cannot be drawn are wrong flags, before anything is read.
func TestSizesOfPictures(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"--width 10", "--height -1", "--width 100000 --height 100000"} {
		cmd := PlotCommand(&app.Process{Stdout: io.Discard, Stderr: io.Discard, Log: slog.New(slog.DiscardHandler)})
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(append(strings.Fields(args), "usage", "absent.gputap", "-o", filepath.Join(t.TempDir(), "x.png")))
		if err := cmd.ExecuteContext(t.Context()); app.ExitCode(err) != 2 {
			t.Errorf("%s: %s", args, fmt.Sprint(err))
		}
	}
}

// TestTimesAreShown: the log shows times that depend on now, or on the zone of this machine, in full.
func TestTimesAreShown(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]bool{
		"--since 2023-11-14T22:13:21Z": false, "": false, "--since 100h": true, "--until 10m": true,
		"--since 2023-11-14T00:00:00Z --until 10m": true,
	} {
		var log bytes.Buffer
		cmd := Command(&app.Process{Stdout: io.Discard, Stderr: io.Discard,
			Log: slog.New(slog.NewTextHandler(&log, nil))})
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(append(strings.Fields("leakage "+pytorch), strings.Fields(args)...))
		_ = cmd.ExecuteContext(t.Context()) // the range may be empty
		shown := strings.Contains(log.String(), "since=20") || strings.Contains(log.String(), "until=20")
		if shown != want {
			t.Errorf("%q: %s", args, log.String())
		}
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// TestErrorsOfTheOutput: each form returns the error of a failed write, and shows its text once.
func TestErrorsOfTheOutput(t *testing.T) {
	t.Parallel()
	path := write(t, []recording.Stream{{State: recording.KnowledgeComplete}}, nil, movingHost(t, "gpu-7"))
	for _, line := range []string{"watermark", "leakage", "usage", "launches", "bandwidth", "usage -o nsys-tsv",
		"diff " + path, "watermark -o csv", "usage -o json", "diff -o csv " + path} {
		cmd := Command(&app.Process{Stdout: full{}, Stderr: io.Discard, Log: slog.New(slog.DiscardHandler)})
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(append(strings.Fields(line), path))
		err := cmd.ExecuteContext(t.Context())
		if app.ExitCode(err) != 1 || strings.Count(err.Error(), "no space left on device") != 1 {
			t.Errorf("%s: %v", line, err)
		}
	}
}
