package export

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/gputap/gputap/cmd/internal/app"
	"github.com/gputap/gputap/cmd/internal/source"
)

// files are the files of one export. They get their names when all are complete.
type files struct {
	stdout io.Writer
	inputs []string // that are read
	list   []*file
}

type file struct {
	*bufio.Writer
	to   *os.File // nil: standard output
	path string
}

// create begins a file; -: standard output.
func (f *files) create(path string) (io.Writer, error) {
	if path == "-" {
		f.list = append(f.list, &file{Writer: bufio.NewWriterSize(f.stdout, 1<<16)})
		return f.list[len(f.list)-1], nil
	}
	part := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".part")
	if err := errors.Join(source.NotInput(path, f.inputs...), source.NotInput(part, f.inputs...)); err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() { // a device or a pipe stays
		to, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		f.list = append(f.list, &file{bufio.NewWriterSize(to, 1<<16), to, ""})
		return f.list[len(f.list)-1], nil
	}
	if err == nil && info.IsDir() {
		return nil, app.Usage(fmt.Errorf("--output %s: it is a directory; name a file", path))
	}
	to, err := os.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("create %s: the directory %s does not exist", path, filepath.Dir(path))
	}
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", path, errors.Unwrap(err)) // without the name of the temporary file
	}
	f.list = append(f.list, &file{bufio.NewWriterSize(to, 1<<16), to, path})
	return f.list[len(f.list)-1], nil
}

// commit completes all files.
func (f *files) commit() (err error) {
	for _, one := range f.list {
		if failed := one.Flush(); failed != nil {
			err = errors.Join(err, fmt.Errorf("write the output: %w", failed))
		}
		if one.to != nil {
			err = errors.Join(err, one.to.Close())
		}
	}
	if err != nil {
		return err
	}
	for _, one := range f.list {
		if one.path != "" {
			err = errors.Join(err, os.Rename(one.to.Name(), one.path))
		}
	}
	f.list = nil
	return err
}

// discard removes what is not complete.
func (f *files) discard() {
	for _, one := range f.list {
		if one.to != nil {
			_ = one.to.Close()
		}
		if one.path != "" {
			_ = os.Remove(one.to.Name())
		}
	}
}
