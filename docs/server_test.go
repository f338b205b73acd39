package docs

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// TestMain is nats-server when it is called by that name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != "nats-server" {
		os.Exit(m.Run())
	}
	if err := serve(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "nats-server:", err)
		os.Exit(1)
	}
}

// serve is nats-server with its own flags and files, at the port and below the directory of the test.
func serve(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	flags := flag.NewFlagSet("nats-server", flag.ContinueOnError)
	options, err := server.ConfigureOptions(flags, args, nil, nil, nil)
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(os.Getenv("DOCS_SERVER"))
	if err != nil {
		return err
	}
	options.Host = host
	if options.Port == 0 || options.Port == 4222 {
		if options.Port, err = strconv.Atoi(port); err != nil {
			return err
		}
	}
	if dir := os.Getenv("DOCS_DIR"); !strings.HasPrefix(options.StoreDir, dir) {
		options.StoreDir = filepath.Join(dir, options.StoreDir)
	}
	options.NoSigs = true
	s, err := server.NewServer(options)
	if err != nil {
		return err
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		return fmt.Errorf("not ready at %s:%d", options.Host, options.Port)
	}
	fmt.Println("Server is ready")
	<-ctx.Done()
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}
