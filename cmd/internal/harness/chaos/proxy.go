package main

import (
	"bytes"
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

	mu      sync.Mutex
	cut     bool
	clients map[net.Conn]bool
}

// delay holds back the first bytes that contain a text, and everything that the same client sends after them.
type delay struct {
	text     []byte
	done     atomic.Bool   // nothing more is held back
	caught   chan struct{} // closed when the text arrived
	released chan struct{} // closed when it may go on
}

func newDelay(text string) *delay {
	return &delay{text: []byte(text), caught: make(chan struct{}), released: make(chan struct{})}
}

// hold returns when these bytes may go on.
func (d *delay) hold(data []byte) {
	if d != nil && bytes.Contains(data, d.text) && d.done.CompareAndSwap(false, true) {
		close(d.caught)
		<-d.released
	}
}

// release ends the delay. It is called once.
func (d *delay) release() {
	d.done.Store(true)
	close(d.released)
}

func newProxy(target string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for clients: %w", err)
	}
	p := &proxy{Listener: l, target: target, clients: map[net.Conn]bool{}}
	go p.run()
	return p, nil
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
	node, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer node.Close()
	if !p.admit(client) {
		return
	}
	go func() {
		defer client.Close()
		_, _ = io.Copy(client, node)
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		p.delay.Load().hold(buf[:n])
		if _, failed := node.Write(buf[:n]); err != nil || failed != nil {
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.clients, client)
}

func (p *proxy) admit(client net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.cut {
		p.clients[client] = true
	}
	return !p.cut
}

// cutConnections closes every connection, and refuses new ones until acceptConnections.
func (p *proxy) cutConnections() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for c := range p.clients {
		_ = c.Close()
	}
}

func (p *proxy) acceptConnections() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
}
