package export

import (
	"context"
	"encoding/json"

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
		return &lines{Encoder: event.NewEncoder(out)}, nil
	},
}

type lines struct {
	*json.Encoder
	events event.Reader
}

func (l *lines) event(b *schema.Batch, i int) error {
	e := l.events.Of(b, i)
	return l.Encode(&e)
}

func (l *lines) finish() error { return nil }
