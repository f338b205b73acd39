package deploy

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/gputap/gputap/cmd/internal/fold"
	"github.com/gputap/gputap/config"
)

// rights are subjects that a role may publish or subscribe to, and some that it may not.
type rights struct {
	publish, refused []string
	hear, deaf       []string
}

const (
	topologyGet = "$JS.API.DIRECT.GET.KV_gputap_meta.$KV.gputap_meta.topology"
	alertsInfo  = "$JS.API.STREAM.INFO.GPUTAP_OUT"
	alertsGet   = "$JS.API.DIRECT.GET.GPUTAP_OUT"
)

var everybodysLimits = rights{
	refused: []string{
		"$JS.API.STREAM.CREATE.X", "$JS.API.STREAM.UPDATE.GPUTAP_EV_000", "$JS.API.STREAM.DELETE.GPUTAP_EV_000",
		"$JS.API.STREAM.PURGE.GPUTAP_EV_000", "$JS.API.STREAM.MSG.DELETE.GPUTAP_EV_000",
		"$JS.API.CONSUMER.DURABLE.CREATE.GPUTAP_EV_000.x",
		"$JS.API.CONSUMER.CREATE.GPUTAP_EV_000", "$JS.API.STREAM.SNAPSHOT.GPUTAP_EV_000",
		"$JS.API.STREAM.RESTORE.GPUTAP_EV_000",
		"$KV.gputap_meta.topology", "gputap.v1.ev.0.other.gpu-9.memory", "gputap.v1.ev.0.default.gpu-2.memory",
		"_INBOX.gputap-admin.x", "anything",
	},
	deaf: []string{">", "_INBOX.>", "_INBOX.gputap-admin.>", "$JS.>", "$KV.>", "$SYS.>", "gputap.>", "gputap.v1.ev.>",
		"gputap.v1.state.>"},
}

var roles = map[string]rights{
	"gpu-1": {
		publish: []string{
			"gputap.v1.ev.0.default.gpu-1.memory", "gputap.v1.ev.15.default.gpu-1.launch",
			"gputap.v1.ev.0.default.gpu-1.host", topologyGet,
		},
		refused: []string{
			"gputap.v1.ev.0.other.gpu-1.memory", "gputap.v1.ev.0.default.gpu-1",
			"gputap.v1.ev.0.default.gpu-1.memory.x",
			"gputap.v1.out.alert.leak.default.gpu-1", "gputap.v1.dlq.leak.0", "gputap.v1.state.leak.0.m",
			"$JS.API.STREAM.INFO.GPUTAP_EV_000", "$JS.API.CONSUMER.CREATE.GPUTAP_EV_000.x", "$JS.API.INFO",
			"$JS.API.CONSUMER.CREATE.GPUTAP_EV_000.x.gputap.v1.ev.0.default.gpu-1.>",
			"$JS.API.DIRECT.GET.GPUTAP_EV_000",
			"$JS.API.DIRECT.GET.KV_gputap_meta.$KV.gputap_meta.x", "$KV.gputap_lease.leak.0",
		},
		hear: []string{"_INBOX.default.gpu-1.x"},
		deaf: []string{"_INBOX.default.gpu-2.*", "_INBOX.*.gpu-1.*", "gputap.v1.ev.0.default.gpu-1.memory",
			"gputap.v1.out.>"},
	},
	"recorder": {
		publish: []string{
			topologyGet, "$JS.API.STREAM.INFO.GPUTAP_EV_015", "$JS.API.STREAM.INFO.KV_gputap_meta",
			"$JS.API.DIRECT.GET.GPUTAP_STATE.gputap.v1.state.leak.0.m",
			"$JS.API.CONSUMER.CREATE.GPUTAP_EV_015.x.gputap.v1.ev.15.*.*.*", "$JS.API.CONSUMER.INFO.GPUTAP_EV_015.x",
			"$JS.API.CONSUMER.DELETE.GPUTAP_EV_015.x", "$JS.API.CONSUMER.MSG.NEXT.GPUTAP_EV_015.x",
		},
		refused: []string{
			"gputap.v1.ev.0.default.gpu-1.memory", "gputap.v1.state.leak.0.m", "gputap.v1.dlq.leak.0",
			"gputap.v1.out.alert.leak.default.gpu-1", "$KV.gputap_lease.leak.0",
			"$JS.API.CONSUMER.CREATE.GPUTAP_EV_000.x", "$JS.API.DIRECT.GET.GPUTAP_STATE",
			"$JS.API.DIRECT.GET.GPUTAP_STATE.gputap.v1.state.launch.0.m",
			"$JS.API.CONSUMER.CREATE.GPUTAP_STATE.x.gputap.v1.state.>", "$JS.API.STREAM.MSG.GET.GPUTAP_EV_000",
		},
		hear: []string{"_INBOX.gputap.x"},
		deaf: []string{"_INBOX.gputap-leak.>", "gputap.v1.ev.0.default.gpu-1.memory", "$KV.gputap_lease.>"},
	},
	"reader-default": {
		publish: []string{
			"$JS.API.CONSUMER.CREATE.GPUTAP_EV_000.reader-default.gputap.v1.ev.*.default.>",
			"$JS.API.CONSUMER.CREATE.GPUTAP_EV_000.reader-default.gputap.v1.ev.0.default.gpu-1.memory",
			"$JS.API.CONSUMER.MSG.NEXT.GPUTAP_EV_000.reader-default", "$JS.ACK.GPUTAP_EV_000.reader-default.1.1.1.1.0",
			"$JS.API.CONSUMER.DELETE.GPUTAP_EV_000.reader-default",
		},
		refused: append(readerLimits("reader-default"), alertsInfo, alertsGet,
			"$JS.API.CONSUMER.CREATE.GPUTAP_EV_000.reader-default.gputap.v1.ev.*.other.>",
			"$JS.API.CONSUMER.CREATE.GPUTAP_EV_000.reader-default.gputap.v1.ev.0.*.gpu-1.memory",
			"$JS.API.CONSUMER.CREATE.GPUTAP_EV_000.reader-memory.gputap.v1.ev.*.default.>"),
		hear: []string{"gputap.v1.ev.*.default.>", "gputap.v1.ev.*.default.*.memory",
			"gputap.v1.out.alert.leak.default.>", "_INBOX.reader-default.x"},
		deaf: []string{"gputap.v1.ev.*.other.>", "gputap.v1.ev.*.*.gpu-1.memory", "gputap.v1.out.>",
			"_INBOX.gputap-leak.>", "gputap.v1.dlq.>"},
	},
	"viewer": {
		publish: []string{"gputap.v1.q.leak.0", "gputap.v1.q.anomaly.15", topologyGet, alertsInfo, alertsGet},
		refused: append(readerLimits("viewer")[:len(readerLimits("viewer"))-1], // it may read the topology
			"gputap.v1.q.leak", "gputap.v1.q.leak.0.x", "$JS.API.INFO", "$SRV.PING",
			"$JS.API.STREAM.INFO.GPUTAP_EV_000", "$JS.API.DIRECT.GET.GPUTAP_STATE", "$JS.API.STREAM.PURGE.GPUTAP_OUT",
			"$JS.API.CONSUMER.CREATE.GPUTAP_OUT.viewer", "$JS.API.STREAM.MSG.DELETE.GPUTAP_OUT",
			"$JS.API.CONSUMER.CREATE.GPUTAP_EV_000.viewer.gputap.v1.ev.*.default.>"),
		hear: []string{"gputap.v1.ev.*.*.*.*", "gputap.v1.ev.*.default.*.memory", "gputap.v1.out.alert.leak.default.*",
			"_INBOX.gputap.x"},
		deaf: []string{"gputap.v1.q.>", "gputap.v1.q.leak.0", "gputap.v1.dlq.>", "_INBOX.gputap-leak.>", "_R_.>"},
	},
	"reader-memory": {
		publish: []string{
			"$JS.API.CONSUMER.CREATE.GPUTAP_EV_000.reader-memory.gputap.v1.ev.*.*.*.memory",
			"$JS.API.CONSUMER.MSG.NEXT.GPUTAP_EV_000.reader-memory",
		},
		refused: append(readerLimits("reader-memory"), alertsInfo, alertsGet,
			"$JS.API.CONSUMER.CREATE.GPUTAP_EV_000.reader-memory.gputap.v1.ev.*.*.*.launch",
			"$JS.API.CONSUMER.CREATE.GPUTAP_EV_000.reader-memory.gputap.v1.ev.*.*.*.*"),
		hear: []string{"gputap.v1.ev.*.*.*.memory", "_INBOX.reader-memory.x"},
		deaf: []string{"gputap.v1.ev.*.*.*.*", "gputap.v1.ev.*.default.>", "gputap.v1.ev.*.*.*.launch"},
	},
}

func foldRights(own, other string) rights {
	return rights{
		publish: []string{
			"$KV.gputap_lease." + own + ".0", "$KV.gputap_lease.m." + own + ".a", "gputap.v1.state." + own + ".0.m",
			"gputap.v1.dlq." + own + ".0", "gputap.v1.out.alert." + own + ".default.gpu-1",
			"$JS.API.STREAM.INFO.GPUTAP_EV_015",
			"$JS.API.CONSUMER.CREATE.GPUTAP_EV_015.x", topologyGet, "_R_.x", "_INBOX.gputap.x",
		},
		refused: []string{
			"gputap.v1.q." + own + ".0", "gputap.v1.q." + other + ".0", "_INBOX.gputap-" + other + ".x",
			"gputap.v1.ev.0.default.gpu-1.memory", "gputap.v1.ev.0.default." + own + ".memory",
			"$KV.gputap_lease." + other + ".0", "$KV.gputap_lease.m." + other + ".a", "$KV.gputap_lease." + own,
			"gputap.v1.state." + other + ".0.m", "gputap.v1.dlq." + other + ".0", "gputap.v1.out.alert." + other +
				".default.gpu-1",
			"$JS.API.CONSUMER.CREATE.GPUTAP_STATE.x", "$JS.API.CONSUMER.CREATE.GPUTAP_STATE.x.gputap.v1.state." +
				other + ".>",
			"$JS.API.CONSUMER.CREATE.GPUTAP_STATE.x.gputap.v1.state.>", "$JS.API.DIRECT.GET.GPUTAP_STATE",
			"$JS.API.DIRECT.GET.GPUTAP_STATE.gputap.v1.state." + other + ".0.m", "$JS.API.STREAM.MSG.GET.GPUTAP_STATE",
			"$JS.API.STREAM.CREATE.GPUTAP_DLQ", "$JS.API.CONSUMER.CREATE.GPUTAP_STATE.x.gputap.v1.state." + own + ".>",
			"$JS.API.CONSUMER.CREATE.KV_gputap_lease.x.$KV.gputap_lease.>", "$JS.FC.KV_gputap_lease.x.y",
		},
		hear: []string{"_INBOX.gputap-" + own + ".x", "gputap.v1.q." + own + ".0", "$SRV.PING",
			"$SRV.INFO.gputap-" + own},
		deaf: []string{"gputap.v1.q." + other + ".0", "gputap.v1.q.>", "$SRV.PING.gputap-" + other,
			"_INBOX.gputap-" + other + ".>", "gputap.v1.ev.0.default.gpu-1.memory", "$KV.gputap_lease.>"},
	}
}

func readerLimits(name string) []string {
	return []string{
		"gputap.v1.ev.0.default.gpu-1.memory", "gputap.v1.out.alert.leak.default.gpu-1", "gputap.v1.dlq.leak.0",
		"gputap.v1.state.leak.0.m",
		"$KV.gputap_lease.leak.0", "$JS.API.CONSUMER.CREATE.GPUTAP_EV_000." + name,
		"$JS.API.CONSUMER.CREATE.GPUTAP_EV_000." + name + ".gputap.v1.ev.>",
		"$JS.API.CONSUMER.CREATE.GPUTAP_EV_000." + name + ".>",
		"$JS.API.CONSUMER.CREATE.GPUTAP_EV_000.leak.gputap.v1.ev.*.default.>",
		"$JS.API.CONSUMER.MSG.NEXT.GPUTAP_EV_000.leak", "$JS.API.CONSUMER.DELETE.GPUTAP_EV_000.leak",
		"$JS.API.CONSUMER.NAMES.GPUTAP_EV_000",
		"$JS.API.CONSUMER.LIST.GPUTAP_EV_000", "$JS.API.DIRECT.GET.GPUTAP_EV_000",
		"$JS.API.STREAM.MSG.GET.GPUTAP_EV_000", "$JS.ACK.GPUTAP_EV_000.leak.1.1.1.1.0",
		topologyGet,
	}
}

// init adds a role for each fold, which must not reach the next fold.
func init() {
	names := fold.Names()
	for i, name := range names {
		roles[name] = foldRights(name, names[(i+1)%len(names)])
		r, summary := roles[name], "gputap.v1.ev.0.default.slurm:1.rank"
		if name == "anomaly" {
			r.publish = append(r.publish, summary)
		} else {
			r.refused = append(r.refused, summary)
		}
		roles[name] = r
	}
}

// TestRolesHaveExactlyTheirRights asks the server about every right of every role. The server answers before the PONG
// of a flush.
func TestRolesHaveExactlyTheirRights(t *testing.T) {
	t.Parallel()
	seeds := newKeys(t)
	s := serve(t, files+"nats.conf")
	for user, want := range roles {
		t.Run(user, func(t *testing.T) {
			nc, _ := join(t, user, config.NATS{URL: s.ClientURL(), NKeyFile: seeds[user]}, quiet())
			holdTo(t, nc, want)
		})
	}
}

func holdTo(t *testing.T, nc *nats.Conn, want rights) {
	t.Helper()
	for _, subject := range want.publish {
		if !mayPublish(t, nc, subject) {
			t.Errorf("may not publish to %s", subject)
		}
	}
	for _, subject := range slices.Concat(want.refused, everybodysLimits.refused) {
		if mayPublish(t, nc, subject) {
			t.Errorf("may publish to %s", subject)
		}
	}
	for _, subject := range want.hear {
		if !maySubscribe(t, nc, subject) {
			t.Errorf("may not subscribe to %s", subject)
		}
	}
	for _, subject := range slices.Concat(want.deaf, everybodysLimits.deaf) {
		if maySubscribe(t, nc, subject) {
			t.Errorf("may subscribe to %s", subject)
		}
	}
}

func mayPublish(t *testing.T, nc *nats.Conn, subject string) bool {
	t.Helper()
	check(t, nc.Publish(subject, nil))
	check(t, nc.Flush())
	return !refused(nc, "Publish", subject)
}

func maySubscribe(t *testing.T, nc *nats.Conn, subject string) bool {
	t.Helper()
	sub, err := nc.SubscribeSync(subject)
	check(t, err)
	check(t, nc.Flush())
	no := refused(nc, "Subscription", subject)
	if !no {
		check(t, sub.Unsubscribe())
	}
	return !no
}

func refused(nc *nats.Conn, what, subject string) bool {
	err := nc.LastError()
	return errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), what+" to \""+subject+`"`)
}
