// Package e2b serves the API that E2B's SDKs speak, over sandboxes of package server:
//
//	E2B_API_URL=http://127.0.0.1:7480 E2B_SANDBOX_URL=http://127.0.0.1:7480 E2B_API_KEY=TOKEN
//
// A request belongs to one of four services. Without a sandbox in its headers or Host it is a control call, and needs
// a token of its namespace as X-API-KEY. With one, port 49983 is envd (commands and files) and port 49999 the code interpreter;
// each needs the sandbox's own random token. Any other port is a program in the sandbox.
//
//	e2b.go         the services; spaces.go: a Server for each namespace; answer.go: answers and errors
//	credentials.go the tokens of a sandbox's ports
//	record.go      a sandbox's record on disk; store.go: all records, and their ends; account.go: users in a sandbox
//	sandboxes.go   control calls about sandboxes; list.go, network.go, forks.go, measure.go; idempotent.go: repeated ones
//	startup.go     what a sandbox starts with, and how it resumes
//	process.go     process.Process; running.go: a process and its readers
//	filesystem.go  filesystem.Filesystem, with watch.go; upload.go: /files
//	interpreter.go /execute and /contexts; ports.go: programs in a sandbox
//	quota.go       the ceilings of what a namespace stores; holding.go: what a volume holds
//	template.go    templates; build.go: their builds; buildfiles.go, unpack.go: files for builds
//	built.go       what the images of templates hold; secrets.go, rules.go, volumes.go
//
// A fork and a snapshot have files but no processes. docs/guide/server/serve.md has the table of calls that are not supported.
//
// Paths and users in a request are the sandbox's, where the kernel resolves them: the package opens no file of a
// sandbox. Everything that a sandbox sends is untrusted, and passed on as data.
package e2b

import (
	"cmp"
	"context"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"demesne/images/imageref"
	"demesne/server"
)

// Options configures a Server.
type Options struct {
	Backend server.Sandboxes
	State   string // directory for records, which only this user can reach
	Key     string // signs addresses for uploads; the token of control calls without Access
	Access  *server.Access
	// Namespace is the callers': see [Spaces].
	Namespace string
	Vault     Vault  // keeps the values of secrets; nil: there are no secrets
	Image     string // of the templates base and code-interpreter-v1; empty: the default of this machine
	Domain    string // ports of sandboxes have names below it; empty: "localhost"
	Suffix    string // ends the ids of sandboxes after a dash, so that a router knows this server's; may be empty
	Log       *log.Logger
	Queue     *server.Queue                // of executions of code; the queue of processes is the backend's
	Quota     Quota                        // of the namespace; the zero value has no ceiling
	Beside    *http.ServeMux               // has the routes of the other APIs of the server; may be nil
	QuotaOf   func(namespace string) Quota // for [Spaces]; nil: no namespace has ceilings
}

// hostImage is the name of the host's own programs, which no image can be built from, and builtBase what is built from then.
const (
	hostImage = "host"
	builtBase = "demesne/debian"
)

// base returns the image that a build from the template base starts with.
func (o *Options) base() string {
	if name := cmp.Or(o.Image, imageref.Default(os.Getenv), hostImage); name != hostImage {
		return name
	}
	return builtBase
}

// Server serves the API. Its methods may be called concurrently.
type Server struct {
	opts    Options
	store   *store
	control *http.ServeMux
	inside  *http.ServeMux // envd
	secrets *secrets
	volumes *volumes
	builds  builds
}

// The ports by which the SDKs name services of a sandbox.
const (
	portEnvd        = 49983
	portInterpreter = 49999
)

// version is the version of envd whose features the package has.
const version = "0.6.4"

// Bounds of the bodies of requests, in bytes, beside [server.MaxBody].
const (
	maxCodeBody = 4 * server.MaxBody // code for a kernel
	maxRPCBody  = 64 << 20           // a message, which may hold input for a process
)

// target returns the sandbox and the port that a request names in its headers or its Host. Without an id they disagree, or
// name none: serveSandbox refuses it.
//
// A page of a sandbox may send any header to its own name. The headers must therefore agree with a Host that names a sandbox.
func (o *Options) target(r *http.Request) (id string, port uint16, ok bool) {
	ids, ports := r.Header.Values("E2b-Sandbox-Id"), r.Header.Values("E2b-Sandbox-Port")
	label, named := server.Guard{Domain: o.Domain}.PortLabel(r.Host)
	if named {
		text, of, _ := strings.Cut(label, "-")
		ids, ports = append([]string{of}, ids...), append([]string{text}, ports...)
	}
	if len(ids) == 0 || ids[0] == "" && !named {
		return "", 0, false
	}
	for i, text := range ports {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			n = 0 // serveSandbox refuses it
		}
		if i > 0 && uint16(n) != port {
			return "", 0, true
		}
		port = uint16(n)
	}
	for _, other := range ids[1:] {
		if other != ids[0] {
			return "", 0, true
		}
	}
	return ids[0], port, true
}

type contextKey struct{}

// entryOf returns the sandbox of a request that serveSandbox has checked.
func entryOf(ctx context.Context) *entry {
	e, _ := ctx.Value(contextKey{}).(*entry)
	return e
}

// wakes reports whether a request may resume a paused sandbox, because its creator asked for that. A question about its
// health does not.
func (e *entry) wakes(r *http.Request, port uint16) bool {
	rec := e.snap()
	return rec.State == paused && rec.AutoResume && r.URL.Path != "/health" && port != 0
}

// after calls f once, after d.
func after(d time.Duration, f func()) (stop func()) {
	t := time.AfterFunc(d, f)
	return sync.OnceFunc(func() { t.Stop() })
}
