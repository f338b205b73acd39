package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const retryInterval = time.Second

// Apply makes the changes in order. It can be interrupted anywhere: another plan completes it.
func (p *Plan) Apply(ctx context.Context) error {
	for _, step := range p.Steps {
		if err := step.do(ctx); err != nil {
			return p.explain(err)
		}
	}
	return nil
}

// settleStream calls ensureStream and retries temporary refusals.
func settleStream(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig) error {
	for retries := 0; ; retries++ {
		err := ensureStream(ctx, js, want)
		if retries >= retriesOf(err) || !Sleep(ctx, retryInterval) {
			return err
		}
	}
}

// ensureStream first looks for the stream: a full server refuses to create a stream before it notices that the stream
// exists.
func ensureStream(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig) error {
	err := adjustStream(ctx, js, want)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = js.CreateStream(ctx, want)
	}
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another caller was faster
		err = adjustStream(ctx, js, want)
	}
	if err != nil {
		return fmt.Errorf("create JetStream stream %s: %w", want.Name, err)
	}
	return nil
}

// adjustStream sets the limits of an existing stream and forbids roll-ups where want does.
func adjustStream(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig) error {
	s, err := js.Stream(ctx, want.Name)
	if err != nil {
		return err
	}
	have := s.CachedInfo().Config
	if sameLimits(have, want) {
		return nil
	}
	have.MaxAge, have.MaxBytes, have.Replicas = want.MaxAge, want.MaxBytes, want.Replicas
	have.Duplicates = max(have.Duplicates, want.Duplicates)
	if !want.AllowRollup { // markers of expired keys would allow roll-ups again
		have.AllowRollup, have.SubjectDeleteMarkerTTL = false, 0
	}
	_, err = js.UpdateStream(ctx, have)
	return err
}

func sameLimits(have, want jetstream.StreamConfig) bool {
	return have.MaxAge == want.MaxAge && have.MaxBytes == want.MaxBytes && have.Replicas == want.Replicas &&
		have.Duplicates >= want.Duplicates && (want.AllowRollup || !have.AllowRollup)
}

func sealStream(ctx context.Context, js jetstream.JetStream, name string) error {
	return updateClosed(ctx, js, name, func(s *jetstream.StreamInfo) bool {
		was := s.Config.Sealed
		s.Config.Sealed = true
		return !was
	})
}

func shrinkStream(ctx context.Context, js jetstream.JetStream, name string) error {
	return updateClosed(ctx, js, name, func(s *jetstream.StreamInfo) bool {
		was := s.Config.MaxBytes
		s.Config.MaxBytes = min(was, int64(s.State.Bytes)+slack)
		return s.Config.MaxBytes != was
	})
}

// updateClosed changes a stream of a closed generation if it exists and change says so. It tries twice: another caller
// may seal the stream meanwhile, and the server then refuses the configuration that was read before.
func updateClosed(ctx context.Context, js jetstream.JetStream, name string,
	change func(*jetstream.StreamInfo) bool) error {
	for tries := 1; ; tries++ {
		s, err := js.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		if err == nil {
			info := s.CachedInfo()
			if !change(info) {
				return nil
			}
			_, err = js.UpdateStream(ctx, info.Config)
		}
		if err == nil {
			return nil
		}
		if tries == 2 {
			return fmt.Errorf("close JetStream stream %s: %w", name, err)
		}
	}
}
