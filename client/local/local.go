// Package local has the API of package demesne/client in this process: no server, no port, no token.
//
//	c, err := local.New(local.Options{})
//	defer c.Close()
//	r, err := c.Run(ctx, client.RunRequest{Command: client.Command{Command: "echo hello"}})
//
// A request passes in memory to the handlers of demesne serve, so that every method does what it does over HTTP.
//
// # What it needs
//
// demesne's programs do the work: demesne-runner keeps the sandboxes, demesne-images fetches images. They are looked for in
// $DEMESNE_LIBEXEC, or else beside this program and in ../libexec/demesne. The other variables of
// docs/reference/environment.md count too, as for the command line, which sees the same sandboxes. The programs must be of
// the version of this package.
//
// # What it shares
//
// The sandboxes, jobs and images are those of this process's user. Persistent sandboxes and jobs live on when the process
// ends; a command that a request runs ends with it. Events are appended to the user's audit log. The package sets
// huma.NewError of github.com/danielgtaylor/huma/v2, which that library has once for a process.
package local

import (
	"fmt"
	"log"
	"net/http"

	"demesne/client"
	"demesne/server/inprocess"
)

// Options are the bounds of every sandbox of a Client. The zero value is that of demesne serve.
type Options struct {
	Image  string        // of a sandbox that names none; empty: $DEMESNE_DEFAULT_IMAGE, or host
	Egress string        // the widest mode that a request may name: none, package-managers or open; empty: open
	Limits client.Limits // of a sandbox that asks for none, and the most that one may ask for; zero: the usual ones
	// Namespace keeps the sandboxes, jobs and secrets of this Client apart from those of other namespaces. Empty: it has those
	// of the user, and sees all.
	Namespace string
	Log       *log.Logger // messages, one line each; nil: log.Default()
}

// New returns a Client that works in this process. It does not connect to the runner yet. The caller closes it, which ends
// requests and streams.
func New(o Options) (client.Client, error) {
	s, err := inprocess.New(inprocess.Options(o))
	if err != nil {
		return nil, fmt.Errorf("open sandboxes: %w", err)
	}
	c, err := client.New(client.Options{URL: "http://in-process", HTTP: &http.Client{Transport: transport{s}}})
	if err != nil {
		s.Close()
		return nil, err
	}
	return local{c, s}, nil
}

// local is a Client with its own server.
type local struct {
	client.Client
	server *inprocess.Server
}

// Close implements [client.Client].
func (l local) Close() error {
	l.server.Close()
	return l.Client.Close()
}
