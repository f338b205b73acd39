package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"sync"
)

// proxy stands between the clients and one node, so that connections can be cut and what clients say be held back.
type proxy struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool
	held  *hold
}

// hold is what is to be held back: the first bytes that hold what, and whatever the client says behind them.
type hold struct {
	what   []byte
	caught chan struct{} // closed when they came
	let    chan struct{} // closed when they may go on

	mu   sync.Mutex
	done bool
}

func newHold(what string) *hold {
	return &hold{what: []byte(what), caught: make(chan struct{}), let: make(chan struct{})}
}

// take says whether these bytes are to be held back.
func (h *hold) take(data []byte) bool {
	if h == nil || !bytes.Contains(data, h.what) {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.done {
		return false
	}
	h.done = true
	close(h.caught)
	return true
}

func (h *hold) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.done = true
	select {
	case <-h.let:
	default:
		close(h.let)
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
		_, _ = io.Copy(client, node) // however it ends
		done <- struct{}{}
	}()
	go func() {
		p.pass(node, client)
		done <- struct{}{}
	}()
	<-done
	p.mu.Lock()
	delete(p.conns, client)
	delete(p.conns, node)
	p.mu.Unlock()
}

// pass takes what a client says to its node.
func (p *proxy) pass(node io.Writer, client io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		p.mu.Lock()
		held := p.held
		p.mu.Unlock()
		if held.take(buf[:n]) {
			<-held.let
		}
		if _, failed := node.Write(buf[:n]); err != nil || failed != nil {
			return
		}
	}
}

// hold has the next bytes that are to be held back wait; nil: none.
func (p *proxy) hold(h *hold) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = h
}

// sever ends every connection, and refuses new ones until heal.
func (p *proxy) sever() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *proxy) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
}

func (p *proxy) close() { _ = p.listener.Close() }
