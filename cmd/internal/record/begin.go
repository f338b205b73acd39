package record

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/consumer/bus"
	"github.com/gputap/gputap/consumer/shard"
	"github.com/gputap/gputap/schema"
	"github.com/gputap/gputap/schema/recording"
)

// begin returns a source for each shard to read. It writes the beginning of a new recording, or continues another one.
func (r *Recorder) begin(ctx context.Context) ([]*source, error) {
	t, err := bus.ReadTopology(ctx, r.JetStream)
	if err != nil {
		return nil, err
	}
	shards := t.Numbers()
	found := r.out.found
	for _, g := range t.Previous { // a closed generation gets no new messages
		for _, shard := range g.Numbers() {
			if !r.Since.IsZero() || found.hasShard(shard) {
				shards = append(shards, shard)
			}
		}
	}
	slices.Sort(shards)
	if r.jobs != nil {
		for h := range found.Hosts {
			r.jobs.Add(h)
		}
	}
	if !found.isNew() && (found.Selection.Redacted || r.Redact) {
		return nil, fmt.Errorf("continue the recording %s: its names would get other pseudonyms than before: choose "+
			"another file", r.out.path)
	}
	if !found.isNew() && !found.Selection.Equal(&r.Selection) {
		return nil, fmt.Errorf("continue the recording %s: it has another selection (%s): use the same --cluster, "+
			"--host, --job and --kind (of run: --features), or another file", r.out.path,
			SelectionText(&found.Selection))
	}
	checkpoints := map[int]shard.SavedState{}
	for _, number := range shards { // before the first messages are chosen: later checkpoints are beyond them
		if found.isNew() && r.wantsState() {
			checkpoints[number] = r.checkpoint(ctx, number)
		}
	}
	sources, infos, err := r.place(ctx, shards, t)
	if err != nil {
		return nil, err
	}
	if found.isNew() {
		sources, infos = withMessages(sources, infos, t)
	}
	for i, s := range sources { // this takes time: by now, all shards have their first messages
		if found.isNew() {
			if err := r.addState(ctx, s, infos[i], checkpoints[s.shard], t); err != nil {
				return nil, err
			}
		}
	}
	r.closed = nil
	if err := r.writeBeginning(sources); err != nil {
		return nil, err
	}
	r.log(sources)
	return sources, nil
}

// withMessages leaves out the closed shards without a message to record: the states of later shards have their hosts.
func withMessages(sources []*source, infos []*jetstream.StreamInfo, t schema.Topology) (
	with []*source, of []*jetstream.StreamInfo) {
	for i, s := range sources {
		if slices.Contains(t.Numbers(), s.shard) || !infos[i].Config.Sealed || s.position < infos[i].State.LastSeq {
			with, of = append(with, s), append(of, infos[i])
		}
	}
	return with, of
}

// place returns a source for each shard whose stream exists, placed before its first message.
func (r *Recorder) place(ctx context.Context, shards []int, t schema.Topology) (sources []*source,
	infos []*jetstream.StreamInfo, err error) {
	for _, number := range shards {
		info, err := r.lookUp(ctx, number)
		if errors.Is(err, jetstream.ErrStreamNotFound) && !t.Has(number) {
			continue // removed since
		}
		if err != nil {
			return nil, nil, err
		}
		s := r.newSource(number, info, len(shards))
		if err := r.placeOne(ctx, s, info); err != nil {
			return nil, nil, err
		}
		sources, infos = append(sources, s), append(infos, info)
	}
	return sources, infos, nil
}

func (r *Recorder) placeOne(ctx context.Context, s *source, info *jetstream.StreamInfo) error {
	found := r.out.found
	if stream, last, known := found.shard(s.shard); known {
		s.stream, s.position = stream, max(stream.After, last)
		if err := s.checkStream(info); err != nil {
			return fmt.Errorf("continue the recording %s: %w", r.out.path, err)
		}
		return nil
	}
	if !found.isNew() { // the shard was added since
		s.position = before(info)
		s.stream.After, s.stream.State = s.position, recording.KnowledgeNone
		return nil
	}
	var err error
	s.position, err = r.firstPosition(ctx, s, info)
	s.stream.After = s.position
	return err
}

// firstPosition returns the sequence before the first message to record.
func (r *Recorder) firstPosition(ctx context.Context, s *source, info *jetstream.StreamInfo) (uint64, error) {
	switch {
	case r.Since.IsZero():
		return info.State.LastSeq, nil
	case info.State.Msgs == 0 || !info.State.FirstTime.Before(r.Since):
		return before(info), nil
	}
	ctx, cancel := context.WithTimeout(ctx, bus.RequestTimeout)
	defer cancel()
	jsStream, err := r.JetStream.Stream(ctx, s.stream.Name)
	if err != nil {
		return 0, fmt.Errorf("look up stream %s: %w", s.stream.Name, err)
	}
	// The server finds the time when it creates a JetStream consumer.
	at, err := createConsumer(ctx, jsStream, s.shard, jetstream.ConsumerConfig{
		FilterSubject: s.filter, DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &r.Since,
	})
	if err != nil {
		return 0, fmt.Errorf("find the first message since %s in %s: %w", r.Since.Format(time.RFC3339), s.stream.Name,
			err)
	}
	defer deleteConsumer(jsStream, at)
	return max(at.CachedInfo().Delivered.Stream, before(info)), nil
}

// writeBeginning writes the streams of a new recording behind its state, and streams that were added to another one.
func (r *Recorder) writeBeginning(sources []*source) error {
	var added []recording.Stream
	for _, s := range sources {
		if _, _, known := r.out.found.shard(s.shard); !known {
			added = append(added, s.stream)
		}
	}
	if err := r.out.addStreams(added); err != nil {
		return err
	}
	if err := r.out.flush(); err != nil {
		return err
	}
	if !r.out.found.isNew() && r.MaxFileBytes > 0 && r.wantsState() {
		return r.continueStates(sources)
	}
	return nil
}

func (r *Recorder) log(sources []*source) {
	incomplete, reasons := 0, map[string]int{} // shards
	for _, s := range sources {
		if s.stream.State == recording.KnowledgePartial && r.jobs == nil && s.lacks != "" {
			incomplete++
			reasons[s.lacks]++
		}
	}
	r.mu.Lock()
	r.stats.Incomplete, r.stats.Continued = incomplete, !r.out.found.isNew()
	r.mu.Unlock()
	attributes := []any{"file", r.out.path, "continued", !r.out.found.isNew(), "shards", len(sources)}
	if !r.Since.IsZero() && r.out.found.isNew() {
		attributes = append(attributes, "since", r.Since)
	}
	if !r.Until.IsZero() {
		attributes = append(attributes, "until", r.Until)
	}
	r.Log.Info("recording", attributes...)
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		r.Log.Warn("the state at the beginning lacks events: "+reason, "shards", reasons[reason])
	}
	if cut := r.out.found.Cut; cut > 0 && !r.out.found.isNew() {
		r.Log.Warn("removed the incomplete end of the recording", "file", r.out.path, "bytes", cut)
	}
}

// SelectionText describes a selection for a person.
func SelectionText(s *recording.Selection) string {
	text := ""
	if s.Cluster != "" {
		text += " cluster " + s.Cluster
	}
	if s.Host != "" {
		text += " host " + s.Host
	}
	if s.Job != "" {
		text += " job " + s.Job
	}
	for i, k := range s.Kinds {
		if i == 0 {
			text += " kinds"
		}
		text += " " + k.String()
	}
	if text == "" {
		text = " everything"
	}
	if s.Redacted {
		text += ", with pseudonyms"
	}
	return text[1:]
}
