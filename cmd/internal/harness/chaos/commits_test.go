package main

import (
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/nats-io/nats.go"
)

// TestOlderCommitsAreFaults: in the stored manifests of a shard neither epoch nor sequence goes back, and an epoch has
// one owner.
func TestOlderCommitsAreFaults(t *testing.T) {
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
		{"an older epoch", []row{{"a", 1, 10}, {"b", 2, 10}, {"a", 1, 15}}, true},
		{"an older state after the claim", []row{{"a", 1, 10}, {"b", 2, 10}, {"b", 2, 5}}, true},
		{"two claims of one epoch", []row{{"a", 1, 10}, {"b", 2, 10}, {"c", 2, 10}}, true},
	} {
		c := newCommits()
		c.onStored("gputap.v1.state.leak.1.m", []byte(`{"owner":"other","epoch":9,"sequence":99}`))
		for _, r := range test.rows {
			data := fmt.Appendf(nil, `{"owner":%q,"epoch":%d,"sequence":%d}`, r.owner, r.epoch, r.sequence)
			c.onStored("gputap.v1.state.leak.0.m", data)
		}
		if err := firstOf(c.now().faults); (err != nil) != test.wrong {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func TestCommitsOfFencedInstancesAreCounted(t *testing.T) {
	c := newCommits()
	c.newest["s"] = manifest{Owner: "b", Epoch: 2}
	for _, epoch := range []int{1, 2, 3} {
		c.onPublished(&nats.Msg{Subject: "s", Data: fmt.Appendf(nil, `{"owner":"a","epoch":%d}`, epoch)})
	}
	if now := c.now(); now.stored != 0 || now.fenced != 1 {
		t.Errorf("%d stored and %d fenced, want 0 and 1", now.stored, now.fenced)
	}
}

// TestDelayedBytesArriveOnceInOrder: bytes behind the delayed ones wait as well.
func TestDelayedBytesArriveOnceInOrder(t *testing.T) {
	node, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	arrived := make(chan string)
	go func() {
		defer close(arrived)
		conn, err := node.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		for buf := make([]byte, 4); ; {
			if _, err := io.ReadFull(conn, buf); err != nil {
				return
			}
			arrived <- string(buf)
		}
	}()
	p, err := newProxy(node.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	d := newDelay("two ")
	p.delay.Store(d)
	client, err := net.Dial("tcp", p.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	send := func(text string) {
		t.Helper()
		if _, err := io.WriteString(client, text); err != nil {
			t.Fatal(err)
		}
	}
	want := func(text string) {
		t.Helper()
		if got := <-arrived; got != text {
			t.Fatalf("%q arrived, want %q", got, text)
		}
	}
	send("one ")
	want("one ")
	send("two ")
	<-d.caught
	send("tri ")
	select {
	case got := <-arrived:
		t.Fatalf("%q arrived before the release", got)
	default:
	}
	close(d.released)
	want("two ")
	want("tri ")
	send("two ") // a delay applies once
	want("two ")
	_ = client.Close()
	<-arrived
}
