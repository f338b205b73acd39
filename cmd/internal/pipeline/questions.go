package pipeline

import "github.com/gputap/gputap/cmd/internal/local"

// Listen makes the socket through which commands of this host ask the folds. Without a socket everything else works.
func (p *Pipeline) Listen() {
	socket, err := local.Listen(p.server.Pipe, p.log)
	if err != nil {
		p.log.Warn("commands of this host cannot ask this run", "err", err)
		return
	}
	p.socket = socket
	p.log.Debug("commands of this host may ask this run", "socket", socket.Path())
}
