package proxy

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"demesne/internal/text"
	"demesne/proxy/age"
	"demesne/proxy/policy"
)

// Aging hides the versions of packages that are younger than a bound. For the hosts of registries the proxy ends TLS, as for
// a secret's host. It answers requests for metadata itself, by what the registry says, filtered by package age. It refuses
// files of young versions, which a lock file may name. What it cannot judge it refuses.
type Aging struct {
	Least      time.Duration
	Except     []string                   // names of packages that may be young
	Registries map[string]policy.Registry // hosts of mirrors, in addition to the table of package policy
	Now        func() time.Time           // nil: time.Now
}

// aging is the state of an Aging: what the proxy learned about versions and files.
type aging struct {
	Aging
	known map[string]policy.Registry

	mu    sync.Mutex
	times map[string]time.Time // by registry, package and version, or by address of a file
	small chan struct{}        // has an entry for each request whose metadata is in memory
	large sync.Mutex           // held while large metadata is in memory
}

// Bounds of what is remembered, and of metadata of which several may be in memory.
const (
	mostTimes = 1 << 18
	largeMeta = 4 << 20
	mostMeta  = 8       // requests of a sandbox
	goMeta    = 1 << 20 // of Go's module proxy, whose lists and times are small
)

func newAging(a *Aging) *aging {
	if a == nil {
		return nil
	}
	g := &aging{Aging: *a, known: policy.Registries(), times: map[string]time.Time{}, small: make(chan struct{}, mostMeta)}
	for host, kind := range a.Registries {
		if g.known[host] == "" {
			g.known[host] = kind
		}
	}
	if g.Now == nil {
		g.Now = time.Now
	}
	return g
}

// registry returns the kind of registry at q, or "".
func (g *aging) registry(q policy.Query) policy.Registry {
	if g == nil || q.Name.IsZero() {
		return ""
	}
	return g.known[q.Name.String()]
}

func (g *aging) bound() age.Bound { return age.Bound{Least: g.Least, Now: g.Now()} }

func (g *aging) excepted(name string) bool {
	return slices.ContainsFunc(g.Except, func(e string) bool { return samePackage(e) == samePackage(name) })
}

// samePackage returns the spelling that all names of one package share. It spells a name as Python's registry compares names, and crates' too. npm's and Go's names stay apart by it, except
// for "-", "_" and ".".
func samePackage(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '.' {
			return '-'
		}
		return r
	}, strings.ToLower(s))
}

func (g *aging) learn(prefix string, times age.Times) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.times)+len(times) > mostTimes {
		clear(g.times)
	}
	for k, t := range times {
		g.times[prefix+k] = t
	}
}

func (g *aging) time(key string) (time.Time, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t, ok := g.times[key]
	return t, ok
}

// aged is one request to a registry.
type aged struct {
	*aging
	f    *forwarder
	w    http.ResponseWriter
	r    *http.Request
	flow *flow
	pkg  string

	holds, counts bool // aging.large, an entry of aging.small

	recording sync.Mutex // guards the address in the flow's record: fetch runs several times at once
}

// serveAged answers a request to a registry, or reports that it may be forwarded.
func (f *forwarder) serveAged(w http.ResponseWriter, r *http.Request, fl *flow) (done bool) {
	g := f.p.aging
	kind := g.registry(fl.q)
	if kind == "" {
		return false
	}
	x := &aged{aging: g, f: f, w: w, r: r, flow: fl}
	path := r.URL.EscapedPath()
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false // audits and searches of npm
	}
	for _, h := range []string{"If-None-Match", "If-Modified-Since", "If-Range"} { // of what an earlier proxy may have let through
		r.Header.Del(h)
	}
	switch kind {
	case policy.NPMRegistry:
		return x.npm(path)
	case policy.PyPIRegistry, policy.PyPIFiles:
		return x.pypi(path, kind)
	case policy.GoRegistry:
		return x.golang(path)
	}
	return x.crates(path)
}

// key is where the time of a version is remembered.
func (x *aged) key(version string) string {
	return string(x.known[x.flow.q.Name.String()].Names()) + " " + x.pkg + " " + version
}

// youngError reports that a version is too young.
type youngError struct {
	version string
	at      time.Time
}

func (e *youngError) Error() string { return "version " + e.version + " is too young" }

// file forwards the request for a file, unless its version is young. look learns the times of the package.
func (x *aged) file(version string, look func() error) bool {
	return x.judge(x.key(version), version, look)
}

// fileAt is file for a file that is known by its address.
func (x *aged) fileAt(key string, look func() error) bool {
	return x.judge(key, key[strings.LastIndexByte(key, '/')+1:], look)
}

func (x *aged) judge(key, what string, look func() error) bool {
	at, known := x.time(key)
	if !known {
		if err := look(); err != nil && !age.IsNone(err) {
			return x.refuse("its age is unknown: %v", err)
		}
		at, _ = x.time(key)
	}
	if b := x.bound(); b.Young(at) {
		return x.young(what, at)
	}
	return false
}

// young answers with 403, and says how old the version is, and which flag allows it.
func (x *aged) young(what string, at time.Time) bool {
	return x.refuse("%s: %s, and --package-age wants %s; --package-age-except %s allows it", what, x.bound().Says(at), text.FormatAge(x.Least), x.pkg)
}

// refuse answers with 403.
func (x *aged) refuse(format string, args ...any) bool {
	what := "package"
	if x.pkg != "" {
		what = fmt.Sprintf("package %.100q", x.pkg)
	}
	x.flow.deny("%s: %s", what, fmt.Sprintf(format, args...))
	http.Error(x.w, x.flow.message(), http.StatusForbidden)
	return true
}

// metadata answers with filtered metadata. Another answer of the registry than 200 is passed on, with the address of a
// redirect.
func (x *aged) metadata(path, kind string, filter func([]byte) ([]byte, error)) bool {
	defer x.release()
	resp, body, err := x.fetch(x.flow, path, x.r.Header)
	var out []byte
	if err == nil && resp.StatusCode == http.StatusOK {
		out, err = filter(body)
	}
	var young *youngError
	switch {
	case errors.As(err, &young):
		return x.young("version "+young.version, young.at)
	case age.IsNone(err):
		return x.refuse("%v: --package-age wants %s; --package-age-except %s allows it", err, text.FormatAge(x.Least), x.pkg)
	case err != nil:
		x.flow.rec.Error = err.Error()
		http.Error(x.w, "demesne: --package-age: "+err.Error(), http.StatusBadGateway)
		return true
	}
	h := x.w.Header()
	if resp.StatusCode != http.StatusOK {
		out, kind = body, resp.Header.Get("Content-Type")
		if to := resp.Header.Get("Location"); to != "" {
			h.Set("Location", to)
		}
	}
	h.Set("Content-Type", kind)
	h.Set("Cache-Control", "no-cache") // a version becomes old enough meanwhile
	h.Set("Content-Length", fmt.Sprint(len(out)))
	x.flow.rec.Reason += "; --package-age " + text.FormatAge(x.Least)
	x.w.WriteHeader(resp.StatusCode)
	if x.r.Method == http.MethodGet {
		n, _ := x.w.Write(out)
		x.flow.in.Add(int64(n))
	}
	return true
}

// look reads metadata for the proxy itself.
func (x *aged) look(fl *flow, path, accept string, take func([]byte) error) error {
	header := http.Header{"Accept": {accept}}
	if fl == x.flow { // a mirror may want a credential
		header["Authorization"] = x.r.Header["Authorization"]
	}
	defer x.release()
	resp, body, err := x.fetch(fl, path, header)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the registry answered %d", resp.StatusCode)
	}
	return take(body)
}

// release lets other requests have metadata in memory.
func (x *aged) release() {
	if x.holds {
		x.holds = false
		x.large.Unlock()
	}
	if x.counts {
		x.counts = false
		<-x.small
	}
}

// fetch requests metadata, which counts until release: a sandbox must not fill the memory of the process. Go's is small, and
// several answers are read for one request.
func (x *aged) fetch(fl *flow, path string, header http.Header) (*http.Response, []byte, error) {
	ctx, cancel := awaitAnswer(x.r.Context(), x.f.p.ctx)
	defer cancel()
	u := fl.url()
	to := u.Scheme + "://" + u.Host + path
	ctx = fl.traced(context.WithValue(ctx, flowKey{}, fl), func(c net.Conn) {
		x.recording.Lock()
		defer x.recording.Unlock()
		fl.rec.Address = c.RemoteAddr().String()
	})
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, to, nil)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range []string{"Accept", "Authorization", "User-Agent"} {
		if v := header[name]; len(v) > 0 {
			r.Header[name] = v
		}
	}
	if x.f.p.hidden == nil { // or hide could not read it
		r.Header.Set("Accept-Encoding", "gzip")
	}
	if fl.q.Port == 80 || fl.q.Port == 443 {
		r.Host = hostHeader(fl.q)
	}
	resp, err := x.f.transport.RoundTrip(r)
	if err != nil {
		return nil, nil, err
	}
	fl.hide(resp)
	defer resp.Body.Close()
	isGo, most := x.known[fl.q.Name.String()] == policy.GoRegistry, int64(goMeta)
	if !isGo {
		most = largeMeta
		select {
		case x.small <- struct{}{}:
			x.counts = true
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
	from := io.Reader(resp.Body)
	switch coding := resp.Header.Get("Content-Encoding"); coding {
	case "":
	case "gzip":
		if from, err = gzip.NewReader(resp.Body); err != nil {
			return nil, nil, err
		}
	default:
		return nil, nil, fmt.Errorf("the registry compressed its answer by %.20q", coding)
	}
	body, err := io.ReadAll(io.LimitReader(from, most))
	if err == nil && int64(len(body)) == most {
		if isGo {
			return nil, nil, errors.New("the metadata is too large")
		}
		x.large.Lock()
		x.holds = true
		var rest []byte
		rest, err = io.ReadAll(io.LimitReader(from, age.Most-largeMeta+1))
		body = append(body, rest...)
	}
	if len(body) > age.Most {
		err = fmt.Errorf("the metadata is larger than %d MiB", age.Most>>20)
	}
	return resp, body, err
}
