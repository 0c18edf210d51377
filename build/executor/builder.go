package executor

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"demesne/build/containerfile"
	"demesne/images"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/runner"
	"demesne/session"
)

// options are a build's command line.
type options struct {
	file    string // Containerfile; empty: the context's
	recipe  string // name of a recipe, whose files are the context; empty: none
	dir     string // context; or "-"
	stdin   bool   // the context came from stdin, and dir is a copy of it
	names   []imageref.Ref
	plan    containerfile.Options
	labels  []string
	egress  session.Egress
	limits  runner.Limits
	allowed []string // images that the Containerfile may name; empty: all
	claimed bool     // results of steps are kept only for the image
	most    int64    // bytes of all new layers; 0: no bound
	noCache bool
	pull    bool
	epoch   *time.Time // of all files and of the image; nil: now
	iidFile string
	output  output
	style   style
	secrets map[string]secret
	agents  map[string]sshAgent // by id
	env     func(string) (string, bool)
}

// builder is one build.
type builder struct {
	options
	sessions *session.Service
	images   *images.Client
	plan     *containerfile.Plan
	show     *show
	context  *buildContext
	others   map[string]*stage // images that a --from names

	added atomic.Int64 // bytes of new layers

	mu      sync.Mutex
	results map[*containerfile.Stage]*result
	fetches map[containerfile.Remote]*fetch // sources of ADD from the network
	dropped []oci.Digest                    // images without a name, to be removed at the end
	owners  sync.Once                       // see sayOwners
	held    sync.Map                        // locks of images that the build uses
}

// result is a finished stage.
type result struct {
	done  chan struct{}
	stage *stage
}

// removeIntermediate removes the images that sandboxes were made from. Their layers are kept as steps.
func (b *builder) removeIntermediate() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.images.Store.RemoveAll(context.Background(), b.dropped); err != nil {
		b.show.note(fmt.Sprintf("remove intermediate images: %v", err))
	}
}

// stage is a stage that is built.
type stage struct {
	*builder
	plan    *containerfile.Stage
	st      *containerfile.State
	base    []byte // configuration of the base; empty: none
	layers  []oci.Layer
	below   []oci.Digest // what the next step finds: see add
	history []ocispec.History
	sandbox *sandbox     // nil: nothing had to be executed yet
	opening sync.Mutex   // held while another stage opens sandbox
	sent    []oci.Digest // of the files that the current step has read from the context
	steps   int          // made so far, and
	of      int          // in all
	task    *task        // the last step
}

// sandbox is the sandbox in which a stage executes its steps.
type sandbox struct {
	*builder
	*session.Sandbox
	engine session.Engine
	has    []oci.Layer // the layers of its files
	taken  int         // how many of them it made itself, and were taken
	needs
}

// needs are the properties of a sandbox that a step depends on, besides its files.
type needs struct {
	user   string // of the image; empty: root
	online bool   // it has a network
	mounts *mounts
}

// A fetch is one source of ADD from the network. Its own sandbox fetches it, with the egress rules of the build, so that
// neither a server nor a repository meets a program of the host.
//
// The sandbox has the host's files, since an image may have neither curl nor git. A file is fetched by this very program,
// mounted into the sandbox and executed with fetchVerb: it is there on every machine, and brings HTTP, proxies and
// redirects. demesne-init would be there too, but every sandbox starts it, and net/http would double its size. For a
// repository git does what no other program does as well. It is the host's, and its absence is an error.
type fetch struct {
	*builder
	*containerfile.Remote
	mu      sync.Mutex
	sandbox *session.Sandbox
	id      string // what the source is now: sha256:HEX of a file, or a commit
	here    bool   // the sandbox has it, at path
}
