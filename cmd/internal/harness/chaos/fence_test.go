package main

import (
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/nats-io/nats.go"
)

// TestFence: of the manifests of one shard neither epoch nor sequence may go back, and an epoch has one owner.
func TestFence(t *testing.T) {
	type row struct {
		owner           string
		epoch, sequence uint64
	}
	for _, test := range []struct {
		name  string
		rows  []row
		wrong bool
	}{
		{"commits and a claim", []row{{"a", 1, 0}, {"a", 1, 10}, {"a", 1, 10}, {"b", 2, 10}, {"b", 2, 20}}, false},
		{"a zombie with an older epoch", []row{{"a", 1, 10}, {"b", 2, 10}, {"a", 1, 15}}, true},
		{"a state taken up before the claim", []row{{"a", 1, 10}, {"b", 2, 10}, {"b", 2, 5}}, true},
		{"two claims of one epoch", []row{{"a", 1, 10}, {"b", 2, 10}, {"c", 2, 10}}, true},
	} {
		w := &fence{newest: map[string]manifest{}}
		w.see("gputap.v1.state.leak.1.m", []byte(`{"owner":"other","epoch":9,"sequence":99}`))
		for _, r := range test.rows {
			w.see("gputap.v1.state.leak.0.m", fmt.Appendf(nil, `{"owner":%q,"epoch":%d,"sequence":%d}`, r.owner, r.epoch, r.sequence))
		}
		if err := w.err(); (err != nil) != test.wrong {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func TestFenceCountsZombies(t *testing.T) {
	w := &fence{newest: map[string]manifest{"s": {Owner: "b", Epoch: 2}}}
	for _, epoch := range []int{1, 2, 3} {
		w.published(&nats.Msg{Subject: "s", Data: fmt.Appendf(nil, `{"owner":"a","epoch":%d}`, epoch)})
	}
	if stored, late := w.counts(); stored != 0 || late != 1 {
		t.Errorf("%d of %d are late, want 1 of none", late, stored)
	}
}

// TestHold: what is to be held back comes when it is let go, once and in order.
func TestHold(t *testing.T) {
	node, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	came := make(chan string)
	go func() {
		defer close(came)
		conn, err := node.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		for buf := make([]byte, 4); ; {
			if _, err := io.ReadFull(conn, buf); err != nil {
				return
			}
			came <- string(buf)
		}
	}()
	p, err := newProxy(node.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	h := newHold("two ")
	p.hold(h)
	client, err := net.Dial("tcp", p.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	say := func(text string) {
		t.Helper()
		if _, err := io.WriteString(client, text); err != nil {
			t.Fatal(err)
		}
	}
	want := func(text string) {
		t.Helper()
		if got := <-came; got != text {
			t.Fatalf("%q came, want %q", got, text)
		}
	}
	say("one ")
	want("one ")
	say("two ")
	<-h.caught
	say("tri ")
	select {
	case got := <-came:
		t.Fatalf("%q came, and was held back", got)
	default:
	}
	h.release()
	want("two ")
	want("tri ")
	say("two ") // only the first one
	want("two ")
	_ = client.Close()
	<-came
}
