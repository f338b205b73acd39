package simulate

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/gputap/gputap/schema"
)

const resumeRetry = 200 * time.Millisecond

// resume continues the log of a simulation that was killed. For each host and kind only the last batch may have been in
// flight, so resume publishes it again. Later batches come from a new boot of each host.
func (s *Simulator) resume(ctx context.Context, path string) (*logWriter, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if errors.Is(err, os.ErrNotExist) {
		return createLog(path)
	}
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	last, end, err := lastOfEach(file)
	if err == nil {
		err = file.Truncate(end) // a truncated entry was not published
	}
	for i := 0; err == nil && i < len(last); i++ {
		err = s.publishAgain(ctx, &last[i])
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("resume the log %s: %w", path, err)
	}
	return &logWriter{file: file}, nil
}

// lastOfEach returns the last published batch of each host and kind in the order of the log, and the end of the last
// complete entry.
func lastOfEach(file *os.File) (last []Entry, end int64, err error) {
	type flow struct {
		cluster, host string
		kind          schema.Kind
	}
	index := map[flow]int{}
	r := logReader{in: bufio.NewReaderSize(file, 1<<20)}
	for {
		e, err := r.next()
		if errors.Is(err, io.EOF) {
			return last, max(r.at, int64(len(logMagic))), nil
		}
		if err != nil {
			return nil, 0, err
		}
		if e.Withheld {
			continue
		}
		e.Data = bytes.Clone(e.Data)
		at := flow{e.Cluster, e.Host, e.Kind}
		i, known := index[at]
		if !known {
			i = len(last)
			index[at], last = i, append(last, Entry{})
		}
		last[i] = e
	}
}

// publishAgain publishes a batch and retries until it is acked.
func (s *Simulator) publishAgain(ctx context.Context, e *Entry) error {
	conn := s.options.Conns[0]
	for {
		t, err := s.options.Topology(ctx)
		if err == nil {
			subject := schema.Subject(t.Shard(e.Cluster, e.Host), e.Cluster, e.Host, e.Kind)
			asked, cancel := context.WithTimeout(ctx, ackTimeout)
			m, failed := conn.RequestWithContext(asked, subject, e.Data)
			cancel()
			if err = failed; err == nil {
				err = answer(m)
			}
		}
		if err == nil {
			return nil
		}
		select {
		case <-time.After(resumeRetry):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}
