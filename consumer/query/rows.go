package query

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Rows decodes the rows of an answer, shard by shard, each in its order. It decodes two shards at a time.
func Rows[T any](a *Answer) ([]T, error) {
	lists, errs := make([][]T, len(a.Replies)), make([]error, len(a.Replies))
	var group sync.WaitGroup
	turn := make(chan struct{}, workers)
	for i := range a.Replies {
		turn <- struct{}{}
		group.Go(func() {
			lists[i], errs[i] = decode[T](&a.Replies[i])
			<-turn
		})
	}
	group.Wait()
	var all []T
	for _, list := range lists {
		all = append(all, list...)
	}
	return all, errors.Join(errs...)
}

func decode[T any](r *Reply) (rows []T, err error) {
	readers := make([]io.Reader, len(r.bodies))
	for i, body := range r.bodies {
		readers[i] = bytes.NewReader(body)
	}
	decoder := json.NewDecoder(io.MultiReader(readers...))
	for {
		var row T
		switch err := decoder.Decode(&row); {
		case errors.Is(err, io.EOF):
			return rows, nil
		case err != nil:
			return nil, fmt.Errorf("read the rows of shard %d of %s: %w", r.Shard, r.Fold, err)
		}
		rows = append(rows, row)
	}
}
