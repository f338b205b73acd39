package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// proxy sits between the clients and one node. It can cut connections, and delay one message that a client sends.
// toxiproxy cuts connections too, but it cannot select a message by its contents.
type proxy struct {
	net.Listener
	target string
	delay  atomic.Pointer[delay] // of what clients send from now on; nil: none

	mu  sync.Mutex
	up  context.Context    // ends with the next cut
	cut context.CancelFunc // closes every connection, and refuses new ones until connect
}

// delay holds back the first bytes that contain a text, and everything that the same client sends after them.
type delay struct {
	text     []byte
	seen     atomic.Bool   // nothing more is held back
	caught   chan struct{} // closed when the text arrived
	released chan struct{} // closed to let it go on
}

func newDelay(text string) *delay {
	return &delay{text: []byte(text), caught: make(chan struct{}), released: make(chan struct{})}
}

// hold returns when these bytes may go on.
func (d *delay) hold(data []byte) {
	if d != nil && bytes.Contains(data, d.text) && d.seen.CompareAndSwap(false, true) {
		close(d.caught)
		<-d.released
	}
}

func newProxy(target string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for clients: %w", err)
	}
	p := &proxy{Listener: l, target: target}
	p.connect()
	go p.run()
	return p, nil
}

// connect lets clients connect until the next cut.
func (p *proxy) connect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.up, p.cut = context.WithCancel(context.Background())
}

func (p *proxy) run() {
	for {
		client, err := p.Accept()
		if err != nil {
			return
		}
		go p.serve(client)
	}
}

// serve connects a client to the node until one of them, or a cut, closes its connection.
func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	p.mu.Lock()
	up := p.up
	p.mu.Unlock()
	defer context.AfterFunc(up, func() { _ = client.Close() })()
	node, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer node.Close()
	go func() {
		defer client.Close()
		_, _ = io.Copy(client, node)
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		p.delay.Load().hold(buf[:n])
		if _, failed := node.Write(buf[:n]); err != nil || failed != nil {
			return
		}
	}
}
