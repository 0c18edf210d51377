package docker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/internal/lazy"
	"demesne/runner"
	"demesne/session"
)

// server is the Docker engine of one parent.
type server struct {
	session  *session.Service
	parent   session.CreateOptions
	sandbox  string // id of the parent
	alias    string // of the parent in its group: containers publish ports on its loopback
	socket   string // where the parent's caller sees the socket
	dir      string // its directory, with volumes and outputs
	ctx      context.Context
	end      context.CancelFunc
	events   events
	building sync.Mutex     // held by a build: they run one after the other
	buildKit sync.Once      // the caller was told that it is not spoken
	lending  sync.Mutex     // held while the parent's limits change: see claim
	ending   sync.WaitGroup // of spares and, at the end, of containers

	mu         sync.Mutex
	containers []*container // the oldest first
	execs      map[string]*execution
	volumes    map[string]*volume
	networks   []*network
	built      map[string]string // names that clients gave to the images they built → names in the store
	owned      []string          // all images that builds made, by their names in the store
	layers     int64             // bytes of layers that builds made
	step       runner.Limits     // of the build that runs, and its layers
	contexts   int64             // bytes of contexts of builds
	nextPort   int
	spare      spare
}

// newID returns a random id in Docker's form.
func newID() string {
	var b [32]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// container is a sandbox beside the parent, with one main command. The sandbox exists from the first use of its files until
// the container is removed.
type container struct {
	id      string
	body    creation
	ref     imageref.Ref
	image   oci.Config
	digest  string
	create  session.CreateOptions
	argv    []string
	volumes []*volume
	made    time.Time
	out     *journal
	health  *healthcheck // nil: none
	removed chan struct{}
	weight  int // see keptMost

	making  sync.Mutex // held while the sandbox is made, or the command started
	sandbox *session.Sandbox
	likely  string // the kind of the container that probably follows; empty: none does
	used    bool   // a client has used its files, or started its command

	mu    sync.Mutex
	state state
	next  *run // that goes on, or the next one
	gone  bool
	ends  map[string]*endpoint // by the names of networks
	ports []runner.Port        // published
}

// state is what changes in a container.
type state struct {
	name, status      string
	code              int
	oom, stopping     bool
	err               string
	started, finished time.Time
	health            healthState
}

// run is one run of a container's command.
type run struct {
	*process
	done   chan struct{} // closed when the command has ended
	code   int
	failed error // why it did not start
}

func (r *run) hasStarted() bool {
	select {
	case <-r.started:
		return true
	default:
		return false
	}
}

// begun waits until the command runs, and returns why it does not. A short one may have ended by then.
func (r *run) begun() error {
	select {
	case <-r.started:
	case <-r.done:
	}
	if r.hasStarted() {
		return nil
	}
	return r.failed
}

// The states of a container.
const (
	created = "created"
	running = "running"
	exited  = "exited"
)

// containersMost bounds the containers of a parent.
const containersMost = 64

func (c *container) nextRun() *run {
	p := newProcess(c.out, c.body.Tty, c.body.OpenStdin)
	p.alone = true
	return &run{process: p, done: make(chan struct{})}
}

func (c *container) snap() state {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

func (c *container) current() *run {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.next
}

// live returns the run that goes on, or nil. Between a look at the state and a call of current it may end.
func (c *container) live() *run {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.status != running {
		return nil
	}
	return c.next
}

func (c *container) labels() map[string]string {
	all := map[string]string{}
	for _, m := range []map[string]string{c.image.Labels, c.body.Labels} {
		for k, v := range m {
			all[k] = v
		}
	}
	return all
}

// env returns the variables of the image and of the client.
func (c *container) env() []string {
	return append(oci.Variables(c.image.Env), oci.Variables(c.body.Env)...)
}

func (c *container) dir() string {
	for _, dir := range []string{c.body.WorkingDir, c.image.WorkingDir} {
		if dir != "" {
			return dir
		}
	}
	return "/"
}

// tell reports an event of a container.
func (s *server) tell(c *container, action string, more map[string]string) {
	attributes := map[string]string{"name": c.snap().name, "image": c.body.Image}
	for _, m := range []map[string]string{c.labels(), more} {
		for k, v := range m {
			attributes[k] = v
		}
	}
	s.events.tell("container", action, c.id, attributes)
}

func firstOf(words ...string) string {
	i := slices.IndexFunc(words, func(w string) bool { return w != "" })
	return words[max(i, 0)]
}

// stampText formats a time; the zero time is Docker's.
func stampText(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

var nameForm = lazy.Regexp{Expr: `^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$`}

// network is a name. All containers of a parent are in one group, whatever their networks are.
type network struct {
	Name, ID, Driver, Scope, Created string
	Internal, Attachable             bool
	Labels, Options                  map[string]string
	IPAM                             map[string]any
	EnableIPv6                       bool
	ConfigOnly, Ingress              bool
	builtin                          bool
	weight                           int
}

// endpoint is a container's place in a network.
type endpoint struct {
	Aliases, DNSNames, Links                              []string
	NetworkID, EndpointID, Gateway, IPAddress, MacAddress string
	IPPrefixLen                                           int
}

// volume is a directory that ends with the parent.
type volume struct {
	Name, Driver, Mountpoint, Scope, CreatedAt string
	Labels, Options                            map[string]string
	dir                                        string
	disk                                       int64 // what containers may have filled it with
	anonymous                                  bool
	weight                                     int
}
