package answer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/gputap/gputap/consumer/query"
	"github.com/gputap/gputap/schema"
)

// Fleet asks the consumers of a bus and joins their replies.
type Fleet struct {
	nc     *nats.Conn
	client *query.Client
}

// NewFleet returns a Fleet that asks over a connection.
func NewFleet(nc *nats.Conn) *Fleet { return &Fleet{nc, query.NewClient(nc)} }

// List is the answer to one question: items of a kind, and which shards they come from.
type List[T any] struct {
	Time time.Time `json:"time"`
	Reach
	Begins *time.Time `json:"begins,omitempty"` // of a history: since when it is complete
	Total  int        `json:"total"`            // items of the shards that answered, before the limit
	Items  []T        `json:"items"`

	remarks []string
}

// More returns how many items the limit hides.
func (l *List[T]) More() int { return l.Total - len(l.Items) }

// Remarks returns sentences about what the items lack.
func (l *List[T]) Remarks() []string { return l.remarks }

// Reach says which shards answered.
type Reach struct {
	Shards     int      `json:"shards"`
	Answered   int      `json:"answered"`
	Missing    []int    `json:"missing"`     // shards that lack the answer of a fold that runs
	NotRunning []string `json:"not_running"` // folds that no instance runs

	reasons []string
	absent  string // the fold that must run, if no instance runs it
	moving  int    // generation to which the shards are moving; 0: they are not
}

func newReach(t *topology) Reach {
	r := Reach{Shards: t.Shards, Answered: t.Shards, Missing: []int{}, NotRunning: []string{}}
	if len(t.Previous) > 0 && time.Since(t.stored) < movingFor {
		r.moving = t.Generation
	}
	return r
}

// movingFor is how long consumers may need to claim the shards of a new generation.
const movingFor = 30 * time.Second

// MovingText says that shards lack an answer because their number was changed a moment ago; "": another cause.
func (r *Reach) MovingText() string {
	if r.moving == 0 || len(r.Missing) == 0 && len(r.NotRunning) == 0 {
		return ""
	}
	return fmt.Sprintf("the shards are moving to generation %d; ask again in some seconds", r.moving)
}

// Incomplete returns which shards are missing and why, or nil.
func (r *Reach) Incomplete() error {
	if len(r.Missing) == 0 {
		return nil
	}
	moving := r.MovingText()
	switch {
	case r.Answered == 0 && r.absent != "" && len(r.reasons) == 1 && moving != "":
		return errors.New(moving)
	case r.Answered == 0 && r.absent != "" && len(r.reasons) == 1:
		return fmt.Errorf("no instance of gputap-%s answers; start one", r.absent)
	}
	if moving != "" {
		moving = "; " + moving
	}
	return fmt.Errorf("%d of %d shards answered; %s%s", r.Answered, r.Shards, r.MissingText(), moving)
}

// MissingText names the shards that are missing, and why they are.
func (r *Reach) MissingText() string {
	text := "missing: " + strings.Trim(strings.ReplaceAll(fmt.Sprint(r.Missing), " ", ", "), "[]")
	if len(r.reasons) > 0 {
		text += " (" + strings.Join(r.reasons, "; ") + ")"
	}
	return text
}

// add adds the shards that lack the answer of a fold. If no instance runs the fold, they are missing only if it is
// the first one of the question.
func (r *Reach) add(a *query.Answer, first bool) {
	if len(a.Replies) == 0 && a.Unowned() {
		if !slices.Contains(r.NotRunning, a.Fold) {
			r.NotRunning = append(r.NotRunning, a.Fold)
		}
		if !first {
			return
		}
		r.absent = a.Fold
	}
	for _, m := range a.Missing {
		r.Missing = append(r.Missing, m.Shard)
		reason := a.Fold + ": " + m.Reason
		if !slices.Contains(r.reasons, reason) {
			r.reasons = append(r.reasons, reason)
		}
	}
	slices.Sort(r.Missing)
	r.Missing = slices.Compact(r.Missing)
	r.Answered = r.Shards - len(r.Missing)
}

// asked is a question for one fold.
type asked struct {
	fold string
	query.Question
}

// topology is the shards that were asked.
type topology struct {
	schema.Topology
	stored time.Time // when NATS stored it; zero: unknown
}

// askEach asks all questions at the same time, each all shards of the newest generation. So a fold
// that does not answer delays no other.
func (f *Fleet) askEach(ctx context.Context, questions []asked) (
	answers []*query.Answer, shards *topology, err error,
) {
	shards = &topology{}
	if shards.Topology, shards.stored, err = f.client.Topology(ctx); err != nil {
		return nil, nil, err
	}
	answers, errs := make([]*query.Answer, len(questions)), make([]error, len(questions))
	var group sync.WaitGroup
	for i, q := range questions {
		group.Go(func() { answers[i], errs[i] = f.client.Ask(ctx, q.fold, shards.Numbers(), q.Question) })
	}
	group.Wait()
	return answers, shards, errors.Join(errs...)
}

// reachOf returns which shards answered. The fold of the first answer is the one that must run.
func reachOf(t *topology, answers ...*query.Answer) Reach {
	r := newReach(t)
	for _, a := range answers {
		r.add(a, a.Fold == answers[0].Fold)
	}
	return r
}

// ask asks several folds at once.
func (f *Fleet) ask(ctx context.Context, q query.Question, folds ...string) (
	answers []*query.Answer, r Reach, err error,
) {
	questions := make([]asked, 0, len(folds))
	for _, fold := range folds {
		questions = append(questions, asked{fold, q})
	}
	answers, shards, err := f.askEach(ctx, questions)
	if err != nil {
		return nil, r, err
	}
	return answers, reachOf(shards, answers...), nil
}

// rows asks one fold and decodes its rows.
func rows[T any](ctx context.Context, f *Fleet, q query.Question, fold string) (
	list []T, total int, r Reach, err error,
) {
	answers, r, err := f.ask(ctx, q, fold)
	if err != nil {
		return nil, 0, r, err
	}
	list, err = query.Rows[T](answers[0])
	return list, answers[0].Total(), r, err
}
