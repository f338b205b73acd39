package screen

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/gputap/gputap/cmd/internal/harness/terminal"
	"github.com/gputap/gputap/consumer/consumertest"
)

// settled waits until the screen equals a golden file, and fails with both.
func settled(t *testing.T, tty *terminal.Terminal, name string, texts ...string) {
	t.Helper()
	screen := tty.AwaitText(texts...)
	file := "testdata/" + name + ".txt"
	if want, err := os.ReadFile(file); err == nil && flag.Lookup("update").Value.String() == "false" {
		screen, _ = tty.Await(func(screen string) bool { return screen == string(want) })
	}
	consumertest.GoldenFile(t, file, []byte(screen))
	if strings.Contains(screen, "\x1b") {
		t.Error("the screen has a control character")
	}
}

// TestGoldenScreens shows a fleet on a narrow and on a wide terminal, opens a process and one of its groups, and asks
// for help.
func TestGoldenScreens(t *testing.T) {
	t.Parallel()
	for _, size := range []struct {
		name          string
		width, height int
	}{{"80x24", 80, 24}, {"160x50", 160, 50}} {
		t.Run(size.name, func(t *testing.T) {
			t.Parallel()
			tty := run(t, fleet(60), options(Colours), size.width, size.height)
			settled(t, tty, "processes-"+size.name, "q quit", "gpu-17", "ALERT")
			tty.Type("\r")
			settled(t, tty, "process-"+size.name, "OLDEST", "loader", "suspect: live memory has grown")
			tty.Type("\x1b[B\x1b[B\r") // down, down
			settled(t, tty, "group-"+size.name, "ADDRESS", "allocations of thread")
			tty.Type("?")
			settled(t, tty, "help-"+size.name, "LAUNCH/S", "Any key closes")
		})
	}
}
