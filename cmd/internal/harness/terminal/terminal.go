package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/charmbracelet/x/vt"
	"golang.org/x/sys/unix"
)

// patience is how long Await waits.
const patience = 10 * time.Second

// Terminal is a screen with a keyboard.
type Terminal struct {
	Program *os.File // the end that a program reads and writes

	tb      testing.TB
	master  *os.File
	changed chan struct{} // holds a value if the screen may have changed

	mu      sync.Mutex
	screen  *vt.Emulator
	written strings.Builder
}

// Open returns a terminal of a size. It is closed when the test ends.
func Open(tb testing.TB, width, height int) *Terminal {
	tb.Helper()
	t := &Terminal{tb: tb, changed: make(chan struct{}, 1), screen: vt.NewEmulator(width, height)}
	var err error
	if t.master, t.Program, err = open(); err != nil {
		tb.Fatalf("open a pseudo-terminal: %v", err)
	}
	t.setSize(width, height)
	var ended sync.WaitGroup
	ended.Go(t.show)
	ended.Go(func() { _, _ = io.Copy(t.master, t.screen) }) // answers to questions about the terminal
	tb.Cleanup(func() {
		_ = t.Program.Close()
		_ = t.master.Close()
		if input, ok := t.screen.InputPipe().(io.Closer); ok { // Close of the emulator races with its Read
			_ = input.Close()
		}
		ended.Wait()
	})
	return t
}

func open() (master, program *os.File, err error) {
	if master, err = os.OpenFile("/dev/ptmx", os.O_RDWR, 0); err != nil {
		return nil, nil, err
	}
	var number uint32
	raw, err := master.SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		if failed = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); failed == nil {
			number, failed = unix.IoctlGetUint32(int(fd), unix.TIOCGPTN)
		}
	})
	if err == nil {
		err = failed
	}
	if err == nil {
		program, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	return master, program, err
}

// show copies the output of the program to the emulator.
func (t *Terminal) show() {
	buf := make([]byte, 64<<10)
	for {
		n, err := t.master.Read(buf)
		t.mu.Lock()
		_, _ = t.screen.Write(buf[:n])
		t.written.Write(buf[:n])
		t.mu.Unlock()
		select {
		case t.changed <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

func (t *Terminal) setSize(width, height int) {
	raw, err := t.master.SyscallConn()
	if err == nil {
		var failed error
		err = raw.Control(func(fd uintptr) {
			failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ,
				&unix.Winsize{Col: uint16(width), Row: uint16(height)})
		})
		if err == nil {
			err = failed
		}
	}
	if err != nil {
		t.tb.Fatalf("set the size of the terminal: %v", err)
	}
}

// Resize changes the size. Linux sends SIGWINCH to a program that has the terminal as its controlling terminal.
func (t *Terminal) Resize(width, height int) {
	t.tb.Helper()
	t.mu.Lock()
	t.screen.Resize(width, height)
	t.mu.Unlock()
	t.setSize(width, height)
}

// Type sends keys.
func (t *Terminal) Type(keys string) {
	t.tb.Helper()
	if _, err := io.WriteString(t.master, keys); err != nil {
		t.tb.Fatalf("type %q: %v", keys, err)
	}
}

// Screen returns the text of the screen, without spaces at the ends of lines.
func (t *Terminal) Screen() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out strings.Builder
	for y := range t.screen.Height() {
		var line strings.Builder
		for x := 0; x < t.screen.Width(); x++ {
			cell := t.screen.CellAt(x, y)
			if cell == nil || cell.Content == "" {
				line.WriteByte(' ')
				continue
			}
			line.WriteString(cell.Content)
			x += max(0, cell.Width-1)
		}
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return out.String()
}

// Written returns every byte that the program wrote.
func (t *Terminal) Written() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.written.String()
}

// AwaitText waits until the screen has all texts, and returns it.
func (t *Terminal) AwaitText(texts ...string) string {
	t.tb.Helper()
	screen, ok := t.Await(func(screen string) bool {
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				return false
			}
		}
		return true
	})
	if !ok {
		t.tb.Fatalf("the terminal never shows %q:\n%s", texts, screen)
	}
	return screen
}

// Await waits until the screen is as wanted, and returns it. It returns false if that takes too long.
func (t *Terminal) Await(wanted func(screen string) bool) (screen string, ok bool) {
	deadline := time.After(patience)
	for {
		if screen = t.Screen(); wanted(screen) {
			return screen, true
		}
		select {
		case <-t.changed:
		case <-deadline:
			return screen, false
		}
	}
}
