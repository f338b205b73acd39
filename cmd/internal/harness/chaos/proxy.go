package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"sync"
)

// proxy sits between the clients and one node. It can cut connections, and delay one message that a client sends. A
// library such as toxiproxy cuts connections too, but cannot select a message by its contents without a proxy stage of
// our own, so ours stays.
type proxy struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool
	delay *delay
}

// delay holds back the first bytes that contain a text, and everything that the same client sends after them.
type delay struct {
	text     []byte
	caught   chan struct{} // closed when the text arrived
	released chan struct{} // closed when it may go on

	mu   sync.Mutex
	done bool
}

func newDelay(text string) *delay {
	return &delay{text: []byte(text), caught: make(chan struct{}), released: make(chan struct{})}
}

// catch reports whether these bytes are to be held back. It does so once.
func (d *delay) catch(data []byte) bool {
	if d == nil || !bytes.Contains(data, d.text) {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.done {
		return false
	}
	d.done = true
	close(d.caught)
	return true
}

func (d *delay) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.done = true
	select {
	case <-d.released:
	default:
		close(d.released)
	}
}

func newProxy(target string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for clients: %w", err)
	}
	p := &proxy{listener: l, target: target, conns: map[net.Conn]bool{}}
	go p.run()
	return p, nil
}

func (p *proxy) url() string { return "nats://" + p.listener.Addr().String() }

func (p *proxy) run() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.serve(client)
	}
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	node, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer node.Close()
	p.mu.Lock()
	if p.cut {
		p.mu.Unlock()
		return
	}
	p.conns[client], p.conns[node] = true, true
	p.mu.Unlock()
	done := make(chan struct{}, 2)
	go func() {
		_, _ = io.Copy(client, node) // either end may close the connection
		done <- struct{}{}
	}()
	go func() {
		p.forward(node, client)
		done <- struct{}{}
	}()
	<-done
	p.mu.Lock()
	delete(p.conns, client)
	delete(p.conns, node)
	p.mu.Unlock()
}

// forward copies the client's bytes to its node, with the delay.
func (p *proxy) forward(node io.Writer, client io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		p.mu.Lock()
		delay := p.delay
		p.mu.Unlock()
		if delay.catch(buf[:n]) {
			<-delay.released
		}
		if _, failed := node.Write(buf[:n]); err != nil || failed != nil {
			return
		}
	}
}

// setDelay applies a delay to what clients send from now on; nil: none.
func (p *proxy) setDelay(d *delay) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// cutConnections closes every connection, and refuses new ones until acceptConnections.
func (p *proxy) cutConnections() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *proxy) acceptConnections() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
}

func (p *proxy) close() { _ = p.listener.Close() }
