package deploy

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/gputap/gputap/config"
	"github.com/gputap/gputap/schema"
)

// call is a request that a role may make. The server itself sends the answer to the reply subject.
type call struct{ subject, body string }

// callsOf returns the requests of a role. Their answers are JSON, a stored batch, or empty, which on some API subjects
// is itself a request. to is the delivery subject of a reader's push consumer.
func callsOf(user, to string) []call {
	if strings.HasPrefix(user, "gpu-") {
		return []call{{"gputap.v1.ev.0.default." + user + ".memory", "no batch"}, {topologyGet, ""}, {topologyGet, "x"}}
	}
	if user == "viewer" {
		return []call{{"gputap.v1.q.leak.0", `{"what":"hosts"}`}, {"gputap.v1.q.leak.0", ""}, {topologyGet, ""},
			{alertsInfo, ""}, {alertsGet, `{"next_by_subj":"gputap.v1.out.alert.>","batch":9}`}, {alertsGet, "x"}}
	}
	filter := map[string]string{"reader-default": "gputap.v1.ev.*.default.>",
		"reader-memory": "gputap.v1.ev.*.*.*.memory"}[user]
	create, name := "$JS.API.CONSUMER.CREATE.GPUTAP_EV_000."+user+"."+filter, "GPUTAP_EV_000."+user
	next, ack := "$JS.API.CONSUMER.MSG.NEXT."+name, "$JS.ACK."+name+".1.1.1.1.0"
	remove := "$JS.API.CONSUMER.DELETE." + name
	made := func(more string) string {
		return fmt.Sprintf(`{"stream_name":"GPUTAP_EV_000","config":{"name":%q,"filter_subject":%q,`+
			`"inactive_threshold":60000000000,%s}}`, user, filter, more)
	}
	return []call{
		{create, made(`"ack_policy":"explicit"`)},
		{create, "x"},
		{"$JS.API.CONSUMER.INFO." + name, ""},
		{next, `{"batch":1}`},
		{next, `{"batch":9,"no_wait":true}`},
		{next, `{"batch":9,"expires":1}`},
		{next, "x"},
		{ack, "+NXT"},
		{ack, ""},
		{remove, ""},
		{create, made(`"ack_policy":"none","headers_only":true,"deliver_subject":"` + to + `"`)},
		{remove, ""},
		{create, made(`"ack_policy":"none","deliver_subject":"` + to + `"`)},
		{remove, ""},
	}
}

// foreign are subjects where no answer may arrive.
var foreign = []string{
	"$KV.gputap_meta.topology", "gputap.v1.ev.0.default.gpu-2.memory", "gputap.v1.dlq.leak.0",
	"gputap.v1.out.alert.leak.default.gpu-2",
	"$KV.gputap_lease.leak.0", "$KV.gputap_lease.m.leak.a", "gputap.v1.state.leak.0.m", topologyGet,
	"$JS.API.CONSUMER.MSG.NEXT.GPUTAP_EV_000.victim", "$JS.API.CONSUMER.DELETE.GPUTAP_EV_000.victim",
	"$JS.ACK.GPUTAP_EV_000.victim.1.1.1.1.0",
	"$JS.API.STREAM.PURGE.KV_gputap_lease", "$JS.API.STREAM.PURGE.GPUTAP_EV_000", "$JS.API.STREAM.DELETE.GPUTAP_DLQ",
	"$JS.API.STREAM.DELETE.GPUTAP_STATE", "$JS.API.STREAM.DELETE.KV_gputap_meta", "$JS.API.STREAM.DELETE.GPUTAP_EV_000",
}

// stock stores a message in every stream, and creates a consumer that has received one of them.
func stock(t *testing.T, admin jetstream.JetStream) {
	t.Helper()
	for _, subject := range []string{
		schema.Subject(0, "default", "gpu-2", schema.KindMemory), "gputap.v1.dlq.leak.0",
		"gputap.v1.out.alert.leak.default.gpu-2",
		"gputap.v1.state.leak.0.m", "$KV.gputap_lease.m.leak.a", "$KV.gputap_lease.leak.0",
	} {
		_, err := admin.Publish(t.Context(), subject, []byte("{}"))
		check(t, err)
	}
	victim, err := admin.CreateOrUpdateConsumer(t.Context(), schema.StreamName(0),
		jetstream.ConsumerConfig{Durable: "victim"})
	check(t, err)
	_, err = victim.Next(jetstream.FetchMaxWait(20 * time.Second))
	check(t, err)
}

// inventory describes everything that is stored, except the messages of one subject, and the victim's state, by name.
func inventory(t *testing.T, admin jetstream.JetStream, but string) map[string]string {
	t.Helper()
	all := map[string]string{}
	names := admin.StreamNames(t.Context())
	for name := range names.Name() {
		s, err := admin.Stream(t.Context(), name)
		check(t, err)
		info, err := s.Info(t.Context(), jetstream.WithSubjectFilter(">"))
		check(t, err)
		own := info.State.Subjects[but]
		delete(info.State.Subjects, but)
		all[name] = fmt.Sprintf("%v, the last is %d", info.State.Subjects, info.State.LastSeq-own)
	}
	check(t, names.Err())
	all["topology"] = "missing"
	if m, err := admin.Conn().RequestWithContext(t.Context(), topologyGet, nil); err == nil {
		all["topology"] = string(m.Data)
	}
	all["victim"] = "missing"
	if c, err := admin.Consumer(t.Context(), schema.StreamName(0), "victim"); err == nil {
		info := c.CachedInfo()
		all["victim"] = fmt.Sprintf("%d delivered, %d not acked, %d waiting", info.Delivered.Consumer,
			info.NumAckPending, info.NumWaiting)
	}
	return all
}

// holdReplies makes every request of a user with every foreign reply subject. Nothing that is stored may change, except
// what but names.
func holdReplies(t *testing.T, admin jetstream.JetStream, nc *nats.Conn, user string, but ...string) {
	t.Helper()
	own := schema.Subject(0, "default", user, schema.KindMemory)
	before := inventory(t, admin, own)
	var last []call
	for _, to := range foreign {
		last = callsOf(user, to)
		for _, c := range last {
			check(t, nc.PublishRequest(c.subject, to, []byte(c.body)))
		}
	}
	for _, c := range last { // the server has answered the earlier ones before these
		_, _ = nc.Request(c.subject, []byte(c.body), 100*time.Millisecond)
	}
	after := inventory(t, admin, own)
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if before[name] != after[name] && !slices.Contains(but, name) {
			t.Errorf("%s: %s was %s, is %s", user, name, before[name], after[name])
		}
	}
}

// TestAnswersChangeNothing: a host or a reader may choose any reply subject, but no answer changes stored messages or
// consumers.
func TestAnswersChangeNothing(t *testing.T) {
	t.Parallel()
	seeds := newKeys(t)
	ours := newAuthority(t, "ours")
	ours.forServers("bus", time.Hour)
	jwts, jwtConf := withJWTs(t)
	names := map[string]string{"gpu-1": "gpu-1", "admin": "admin.gputap", "reader-default": "reader-default.gputap",
		"reader-memory": "reader-memory.gputap", "viewer": "viewer.gputap"}
	for path, client := range map[string]func(user string) config.NATS{
		files + "nats.conf":  func(user string) config.NATS { return config.NATS{NKeyFile: seeds[user]} },
		files + "certs.conf": func(user string) config.NATS { return config.NATS{TLS: ours.client(names[user])} },
		jwtConf: func(user string) config.NATS {
			role, _, _ := strings.Cut(user, "-")
			role = strings.ReplaceAll(role, "gpu", "host")
			return config.NATS{CredsFile: jwts.creds(role, user, 0), TLS: config.TLS{CAFile: ours.file}}
		},
	} {
		for _, user := range []string{"gpu-1", "reader-default", "reader-memory", "viewer"} {
			if path == jwtConf && user == "reader-memory" { // jwt/reader.json is for a cluster
				continue
			}
			t.Run(filepath.Base(path)+"/"+user, func(t *testing.T) {
				t.Parallel()
				url := serve(t, path).ClientURL()
				as := func(user string) (*nats.Conn, jetstream.JetStream) {
					c := client(user)
					c.URL = url
					return join(t, user, c, quiet())
				}
				_, admin := as("admin")
				setUp(t, admin)
				stock(t, admin)
				nc, _ := as(user)
				holdReplies(t, admin, nc, user)
			})
		}
	}
}
