package deploy

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/schema"
)

// TestReaderReadsItsEventsOnly: stored and live events of its cluster, or of its kind, and no others.
func TestReaderReadsItsEventsOnly(t *testing.T) {
	t.Parallel()
	seeds := newKeys(t)
	url := serve(t, files+"nats.conf").ClientURL()
	as := func(user string) (*nats.Conn, jetstream.JetStream) {
		return join(t, user, config.NATS{URL: url, NKeyFile: seeds[user]}, quiet())
	}
	_, admin := as("admin")
	setUp(t, admin)
	clusterNC, cluster := as("reader-default")
	kindNC, kind := as("reader-memory")
	_, gpu1 := as("gpu-1")
	_, gpu2 := as("gpu-2")
	liveCluster, err := clusterNC.SubscribeSync("gputap.v1.ev.*.default.>")
	check(t, err)
	liveKind, err := kindNC.SubscribeSync("gputap.v1.ev.*.*.*.memory")
	check(t, err)
	alerts, err := clusterNC.SubscribeSync("gputap.v1.out.alert.*.default.>")
	check(t, err)
	check(t, clusterNC.Flush())
	check(t, kindNC.Flush())
	published := []string{
		schema.Subject(0, "default", "gpu-1", schema.KindMemory),
		schema.Subject(0, "other", "gpu-1", schema.KindMemory),
		schema.Subject(0, "default", "gpu-1", schema.KindLaunch),
		schema.Subject(0, "other", "gpu-1", schema.KindLaunch),
		schema.Subject(0, "default", "gpu-2", schema.KindMemory), // both readers' last
	}
	for _, subject := range published {
		from := admin
		switch {
		case strings.Contains(subject, ".default.gpu-1."):
			from = gpu1
		case strings.Contains(subject, ".default.gpu-2."):
			from = gpu2
		}
		_, err := from.Publish(t.Context(), subject, []byte(subject))
		check(t, err)
	}
	_, leak := as("leak")
	_, err = leak.Publish(t.Context(), schema.AlertSubject("leak", "default", "gpu-1"), []byte("{}"))
	check(t, err)
	if m, err := alerts.NextMsg(20 * time.Second); err != nil || string(m.Data) != "{}" {
		t.Errorf("alert %+v, %v", m, err)
	}
	clusters := []string{published[0], published[2], published[4]}
	kinds := []string{published[0], published[1], published[4]}
	for _, want := range []struct {
		user, filter string
		js           jetstream.JetStream
		live         *nats.Subscription
		stored, now  []string // live is what hosts publish
	}{
		{"reader-default", "gputap.v1.ev.*.default.>", cluster, liveCluster, clusters, clusters},
		{"reader-memory", "gputap.v1.ev.*.*.*.memory", kind, liveKind, kinds, []string{published[0], published[4]}},
	} {
		readStored(t, want.js, want.user, want.filter, want.stored)
		for i, subject := range want.now {
			if live, err := want.live.NextMsg(20 * time.Second); err != nil || live.Subject != subject {
				t.Errorf("%s: live message %d is %+v, %v; want %s", want.user, i, live, err, subject)
			}
		}
	}
}

// readStored reads exactly these messages, several per pull, and acks each.
func readStored(t *testing.T, js jetstream.JetStream, user, filter string, subjects []string) {
	t.Helper()
	c, err := js.CreateOrUpdateConsumer(t.Context(), schema.StreamName(0), jetstream.ConsumerConfig{
		Name: user, FilterSubject: filter, AckPolicy: jetstream.AckExplicitPolicy, InactiveThreshold: time.Minute,
	})
	check(t, err)
	for n := range slices.Chunk(subjects, 256) {
		batch, err := c.Fetch(len(n), jetstream.FetchMaxWait(20*time.Second))
		check(t, err)
		for m := range batch.Messages() {
			check(t, m.DoubleAck(t.Context()))
			if m.Subject() != n[0] {
				t.Errorf("%s: a message is %s, want %s", user, m.Subject(), n[0])
			}
			n = n[1:]
		}
		if batch.Error() != nil || len(n) != 0 {
			t.Errorf("%s: %v, and %d messages did not arrive", user, batch.Error(), len(n))
		}
	}
	if info, err := c.Info(t.Context()); err != nil || info.NumPending != 0 || info.NumAckPending != 0 {
		t.Errorf("%s: messages are left: %+v, %v", user, info, err)
	}
}

// TestReaderCannotAskForMoreInTheBody: the subject of the request is allowed, but its body asks for more.
func TestReaderCannotAskForMoreInTheBody(t *testing.T) {
	t.Parallel()
	seeds := newKeys(t)
	url := serve(t, files+"nats.conf").ClientURL()
	_, admin := join(t, "admin", config.NATS{URL: url, NKeyFile: seeds["admin"]}, quiet())
	setUp(t, admin)
	other := schema.Subject(0, "other", "gpu-1", schema.KindMemory)
	_, err := admin.Publish(t.Context(), other, []byte("another's"))
	check(t, err)
	nc, _ := join(t, "reader-default", config.NATS{URL: url, NKeyFile: seeds["reader-default"]}, quiet())
	const create = "$JS.API.CONSUMER.CREATE.GPUTAP_EV_000.reader-default.gputap.v1.ev.*.default.>"
	for name, c := range map[string]server.ConsumerConfig{
		"no filter":        {Name: "reader-default"},
		"another's filter": {Name: "reader-default", FilterSubject: "gputap.v1.ev.*.other.>"},
		"a wider filter":   {Name: "reader-default", FilterSubject: "gputap.v1.ev.>"},
		"several filters": {Name: "reader-default",
			FilterSubjects: []string{"gputap.v1.ev.*.default.>", "gputap.v1.ev.*.other.>"}},
		"one more filter": {Name: "reader-default", FilterSubject: "gputap.v1.ev.*.default.>",
			FilterSubjects: []string{"gputap.v1.ev.*.other.>"}},
		"another's durable": {Durable: "leak", FilterSubject: "gputap.v1.ev.*.default.>"},
	} {
		c.AckPolicy = server.AckNone
		if got := request(t, nc, create, server.CreateConsumerRequest{Stream: "GPUTAP_EV_000",
			Config: c}); got.Error == nil {
			t.Errorf("%s: created %+v", name, got.ConsumerInfo)
		}
	}
	for name, stream := range map[string]string{"another stream": "GPUTAP_STATE", "no stream": ""} {
		c := server.ConsumerConfig{Name: "reader-default", FilterSubject: "gputap.v1.ev.*.default.>",
			AckPolicy: server.AckNone}
		if got := request(t, nc, create, server.CreateConsumerRequest{Stream: stream, Config: c}); got.Error == nil {
			t.Errorf("%s: created %+v", name, got.ConsumerInfo)
		}
	}
}

func request(t *testing.T, nc *nats.Conn, subject string, body any) (answer server.JSApiConsumerCreateResponse) {
	t.Helper()
	data, err := json.Marshal(body)
	check(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, subject, data)
	check(t, err)
	check(t, json.Unmarshal(m.Data, &answer))
	return answer
}
