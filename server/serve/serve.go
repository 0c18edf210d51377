package serve

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"demesne/internal/flock"
	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/runner/limits"
	"demesne/server"
	"demesne/server/apibackend"
	"demesne/server/e2b"
	"demesne/server/hostcmd"
	"demesne/server/operate"
	"demesne/server/page"
	"demesne/server/servecmd"
	"demesne/session"
	"demesne/session/events"
	"demesne/session/operator"

	"github.com/coreos/go-systemd/v22/daemon"
)

// serve answers clients until ctx ends.
func serve(ctx context.Context, o *servecmd.Options, out, errs io.Writer) error {
	dir, err := stateDir()
	if err != nil {
		return err
	}
	access, err := callers(o, dir)
	if err != nil {
		return err
	}
	secure, keep, err := certificate(o, dir)
	if err != nil {
		return err
	}
	addr := cmp.Or(o.HTTP, servecmd.DefaultAddress)
	if o.Page {
		_, err := fmt.Fprintf(out, "%s://%s%s#token=%s\n", scheme(secure), addr, page.Root, url.QueryEscape(access.Token))
		return err
	}
	if o.Env {
		return printEnv(out, access.Token, scheme(secure)+"://"+addr)
	}
	lock, err := alone(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	p := &program{options: o, state: dir, access: access, mux: &router{ServeMux: http.NewServeMux()}, log: log.New(errs, "demesne: serve: ", 0)}
	if err := p.openOperate(ctx); err != nil {
		return err
	}
	defer p.operate.Close()
	p.queue = newQueue(o, p.operate)
	if err := p.openBackends(); err != nil {
		return err
	}
	defer p.backend.Close()
	if p.mine, err = p.backend.Of(""); err != nil {
		return err
	}
	l, err := server.Listen(addr, o.Exposed)
	if errors.Is(err, server.ErrExposed) {
		err = text.Hinted(err, "--exposed allows it")
	}
	if err != nil {
		return err
	}
	defer l.Close()
	p.domain = o.Domain
	if at, ok := l.Addr().(*net.TCPAddr); ok && p.domain == "" {
		p.domain = "localhost:" + strconv.Itoa(at.Port)
	}
	if err := p.open(ctx); err != nil {
		return err
	}
	defer p.close()
	// For a unit of type notify. No program that the server starts may answer for it, so the variable is removed first.
	if _, err := daemon.SdNotify(true, daemon.SdNotifyReady); err != nil {
		p.log.Printf("notify service manager: %v", err)
	}
	go p.mine.Connect(ctx)
	fmt.Fprintf(errs, "demesne: serve: listening on %s\n", strings.Replace(l.Addr().Network()+":"+l.Addr().String(), "tcp:", scheme(secure)+"://", 1))
	if keep != nil {
		keep(ctx, p.log)
	}
	guard := server.Guard{Hosts: slices.Concat(o.Hosts, o.ACME), Domain: p.domain, Origins: o.Origins}
	return server.Serve(ctx, l, p.operate.Handler(guard.Handler(p)), secure, p.log)
}

// openBackends makes what serves the callers of each namespace.
func (p *program) openBackends() error {
	models, err := operator.FromEnvironment(os.Getenv)
	if err != nil {
		return err
	}
	p.backend = apibackend.NewSpaces(func(namespace string) apibackend.Options {
		b := boundsOf(p.options, namespace)
		b.MaxCost, b.MaxTokens = models.MaxCost, models.MaxTokens // of agents
		return apibackend.Options{
			Bounds: b, Observe: p.operate.Observe, Queue: p.queue,
			Secrets: func(sandbox string) []runner.Secret { return p.credentials(namespace, sandbox) },
		}
	})
	return nil
}

// stateDir makes the directory of the server's state.
func stateDir() (string, error) {
	dir, err := fsutil.StateDir("server")
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return "", fmt.Errorf("find state: %w", err)
	}
	return dir, nil
}

// callers returns who may use the server.
func callers(o *servecmd.Options, dir string) (*server.Access, error) {
	token, err := server.Token(cmp.Or(o.TokenFile, filepath.Join(dir, "token")))
	if err != nil {
		return nil, err
	}
	a := &server.Access{Token: token, Tokens: server.OpenTokens(dir)}
	a.Rates.Of = func(namespace string) float64 { return boundsOf(o, namespace).Rate }
	if o.JWTKey != "" {
		a.JWT, err = server.ReadJWT(o.JWTKey, server.JWTOptions{Algorithm: o.JWTAlgorithm, Audience: o.JWTAudience, Issuer: o.JWTIssuer})
	} else if o.JWTAlgorithm != "" || o.JWTAudience != "" || o.JWTIssuer != "" {
		err = errors.New("a bound of JWTs needs --jwt-key-file")
	}
	return a, err
}

// boundsOf returns the bounds of a namespace; empty: the operator's.
func boundsOf(o *servecmd.Options, namespace string) session.Bounds {
	b, ok := o.Namespaces[namespace]
	if !ok {
		b = o.Bounds
	}
	b.Egress = cmp.Or(b.Egress, servecmd.DefaultEgress)
	usual := limits.Resolve(b.Limits)
	b.Max.Memory, b.Max.Disk = cmp.Or(b.Max.Memory, max(usual.Memory, 0)), cmp.Or(b.Max.Disk, max(usual.Disk, 0)) // none: no bound
	b.Max.PIDs = cmp.Or(b.Max.PIDs, runner.DefaultPIDs)
	return b
}

// The ceilings of what a namespace stores that the operator did not set. Its bytes are so many disk limits of a sandbox.
const (
	storedDisks = 10
	storedMost  = 20 << 30 // without a disk limit
	storedFiles = 100_000
	storedItems = 100 // volumes, snapshots, templates
)

// quotaOf returns the ceilings of what a namespace stores. The operator has none.
func quotaOf(o *servecmd.Options, namespace string) e2b.Quota {
	if namespace == "" {
		return e2b.Quota{}
	}
	b := boundsOf(o, namespace)
	disk := max(limits.Resolve(b.Limits).Disk, 0) // of a sandbox whose caller asks for none, as E2B's do
	if b.Max.Disk > 0 && (disk == 0 || disk > b.Max.Disk) {
		disk = b.Max.Disk
	}
	bytes := int64(storedMost)
	if disk > 0 {
		bytes = storedDisks * disk
	}
	return e2b.Quota{
		Bytes: cmp.Or(b.MaxStored, bytes), Files: cmp.Or(b.MaxFiles, storedFiles), Volume: disk,
		Volumes: cmp.Or(b.MaxVolumes, storedItems), Snapshots: cmp.Or(b.MaxSnapshots, storedItems), Templates: cmp.Or(b.MaxTemplates, storedItems),
	}
}

// certificate returns how the server serves TLS; nil: it does not. keep obtains its certificates, and is nil for files.
func certificate(o *servecmd.Options, dir string) (c *tls.Config, keep func(context.Context, *log.Logger), err error) {
	switch {
	case len(o.ACME) > 0 && (o.Cert != "" || o.Key != ""):
		return nil, nil, errors.New("--acme: not with --tls-cert and --tls-key")
	case len(o.ACME) > 0:
		return server.ACME{Names: o.ACME, Directory: o.ACMEDirectory, CA: o.ACMECA, Contact: o.ACMEContact, State: dir}.Config()
	case o.ACMEDirectory != "" || o.ACMECA != "" || o.ACMEContact != "":
		return nil, nil, errors.New("an ACME authority needs --acme with a host name")
	case (o.Cert != "") != (o.Key != ""):
		return nil, nil, errors.New("--tls-cert and --tls-key: both or neither")
	case o.Cert != "":
		c, err = server.TLSFiles(o.Cert, o.Key)
	}
	return c, nil, err
}

func scheme(secure *tls.Config) string {
	if secure != nil {
		return "https"
	}
	return "http"
}

// printEnv prints the variables for E2B's SDKs.
func printEnv(out io.Writer, token, url string) error {
	_, err := fmt.Fprintf(out, "export E2B_API_KEY=%s\nexport E2B_API_URL=%s\nexport E2B_SANDBOX_URL=%s\nexport E2B_VOLUME_API_URL=%s\n", token, url, url, url)
	return err
}

// program is a running server: the APIs, and what they share.
type program struct {
	options *servecmd.Options
	state   string // directory
	domain  string
	backend *apibackend.Spaces
	mine    *apibackend.Backend // the operator's
	queue   *server.Queue
	access  *server.Access
	bus     events.Bus
	operate *operate.Operator
	log     *log.Logger
	e2b     *e2b.Spaces
	tools   *tools
	host    *hostcmd.Guard // nil: callers get nothing of this machine
	mux     *router        // every path but those of E2B's API
	closers []func()
}

// router remembers its routes, for the test that walks them all.
type router struct {
	*http.ServeMux
	patterns []string
}

func (r *router) Handle(pattern string, h http.Handler) {
	r.patterns = append(r.patterns, pattern)
	r.ServeMux.Handle(pattern, h)
}

func (r *router) HandleFunc(pattern string, h http.HandlerFunc) { r.Handle(pattern, h) }

// open adds the APIs. E2B's has every path that no other one has.
func (p *program) open(ctx context.Context) (err error) {
	p.e2b, err = e2b.NewSpaces(ctx, e2b.Options{
		State: filepath.Join(p.state, "e2b"), Key: p.access.Token, Access: p.access, Domain: p.domain, Log: p.log, Queue: p.queue, Beside: p.mux.ServeMux,
		QuotaOf: func(namespace string) e2b.Quota { return quotaOf(p.options, namespace) },
	}, func(o *e2b.Options) (err error) {
		o.Image = boundsOf(p.options, o.Namespace).Image
		if o.Vault, err = openSecrets(o.Namespace); err == nil {
			o.Backend, err = p.backend.Of(o.Namespace)
		}
		return err
	})
	if err != nil {
		return err
	}
	p.closers = append(p.closers, p.e2b.Close)
	p.mux.Handle("/", p.e2b)
	for _, add := range []func(context.Context) error{
		p.openHost,
		p.addMCP,
		p.addREST,
		p.addOperate,
		p.addPage,
	} {
		if err := add(ctx); err != nil {
			p.close()
			return err
		}
	}
	return nil
}

// credentials returns those of a sandbox that is restarted.
func (p *program) credentials(namespace, sandbox string) []runner.Secret {
	if p.e2b == nil {
		return nil
	}
	return p.e2b.Credentials(namespace, runner.FrontendCLI.In(namespace).Short(sandbox))
}

func (p *program) close() {
	for _, f := range p.closers {
		f()
	}
}

// ServeHTTP passes requests for ports of sandboxes to E2B's API, whatever their path is, and others by their path.
func (p *program) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.e2b.Sandbox(r) {
		p.e2b.ServeHTTP(w, r)
		return
	}
	if p.bounded(w, r) {
		p.mux.ServeHTTP(w, r)
	}
}

// bounded bounds the body of a request, unless that is a file. Each API has a bound of its own beside this one. It answers
// by itself and returns false if the body says that it is larger.
func (p *program) bounded(w http.ResponseWriter, r *http.Request) bool {
	most, kind := p.options.MaxBody, r.Header.Get("Content-Type")
	if most <= 0 || strings.HasPrefix(kind, "multipart/") || kind == "application/octet-stream" {
		return true
	}
	if r.ContentLength > most {
		server.Refuse(w, http.StatusRequestEntityTooLarge, server.TooLarge(most))
		return false
	}
	r.Body = http.MaxBytesReader(w, r.Body, most)
	return true
}

// alone takes the lock that a directory's only server holds.
func alone(dir string) (io.Closer, error) {
	f, err := flock.TryOpen(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, flock.Exclusive)
	if errors.Is(err, flock.ErrLocked) {
		return nil, text.Hinted(fmt.Errorf("another server uses %q", dir), "end it, or set DEMESNE_STATE for a second one")
	}
	if err != nil {
		return nil, fmt.Errorf("lock state: %w", err)
	}
	return f, nil
}
