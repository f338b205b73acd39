package export

import (
	"context"
	"io"

	"github.com/gputap/gputap/cmd/internal/event"
	"github.com/gputap/gputap/cmd/internal/source"
	"github.com/gputap/gputap/schema"
)

var jsonlForm = form{
	name: "jsonl", short: "Every event as one line of JSON",
	long: "The keys are those of gputap tail -o json.\n",
	example: `  gputap export jsonl run.gputap -o -
  gputap export jsonl run.gputap -o launches.jsonl --kind launch --comm python3`,
	flags: addKind,
	open: func(_ context.Context, o *options, _ *source.Source) (sink, error) {
		out, err := o.files.create(o.out)
		if err != nil {
			return nil, err
		}
		return &lines{out: out}, nil
	},
}

type lines struct {
	out    io.Writer
	line   []byte
	events event.Reader
}

func (l *lines) event(b *schema.Batch, i int) error {
	e := l.events.Of(b, i)
	l.line = e.AppendJSON(l.line[:0])
	_, err := l.out.Write(l.line)
	return err
}

func (l *lines) finish() error { return nil }
