package screen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
)

// Run shows the screen on a terminal until the key q or the end of ctx.
func Run(ctx context.Context, source Source, opts Options, in, out *os.File) error {
	ctx, stop := context.WithCancel(ctx) // ends the question that is being asked
	defer stop()
	program := tea.NewProgram(New(ctx, source, opts), tea.WithContext(ctx), tea.WithoutSignalHandler(),
		tea.WithInput(in), tea.WithOutput(out), tea.WithColorProfile(colorprofile.ANSI))
	if _, err := program.Run(); err != nil && !errors.Is(err, tea.ErrProgramKilled) {
		return fmt.Errorf("show the screen: %w", err)
	}
	return nil
}

// Once asks once and writes one screen of a size. It also returns an error if a shard is missing.
func Once(ctx context.Context, source Source, opts Options, width, height int, to io.Writer) (incomplete, err error) {
	m := New(ctx, source, opts)
	m.width, m.height, m.once = width, height, true
	a := m.ask(nil)
	if a.err != nil {
		return nil, a.err
	}
	m.take(a)
	m.settle()
	if _, err := fmt.Fprintln(to, strings.TrimRight(strings.Join(m.lines(), "\n"), "\n ")); err != nil {
		return nil, fmt.Errorf("write the screen: %w", err)
	}
	return a.overview.Incomplete(), nil
}
