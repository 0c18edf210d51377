package executor

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"demesne/build/containerfile"
	"demesne/build/recipe"
	"demesne/images"
	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/runner"
	"demesne/session"
)

// Options say what to build.
type Options struct {
	File      string         // Containerfile; empty: the context's
	Recipe    *recipe.Recipe // whose files are the context; nil: none
	Dir       string         // context; or "-"
	Stdin     io.Reader      // of "-" as File or Dir
	Names     []imageref.Ref
	Plan      containerfile.Options
	Labels    []string
	Egress    session.Egress
	Limits    runner.Limits
	Allowed   []string          // images that the Containerfile may name; empty: all
	Stored    map[string]string // if not nil, no image is pulled, and these names of images mean other ones
	Claimed   bool              // results of steps are kept only for the image
	MaxLayers int64             // bytes of all new layers; 0: no bound
	NoCache   bool
	Pull      bool
	Compress  bool       // start the compression of the image in the background, because a user may push it
	Epoch     *time.Time // of all files and of the image; nil: now
	IIDFile   string
	Output    Output
	Stdout    *os.File // of "-" as Output
	Style     Style
	Log       *os.File           // of progress
	Events    func(events.Event) // of progress, in style Reported
	Secrets   map[string]Secret
	Agents    map[string]SSHAgent // by id
	Env       func(string) (string, bool)

	stdin bool // the context came from stdin, and Dir is a copy of it
}

// Builder is one build.
type Builder struct {
	Options
	remove   func() // of the files that only the build needed
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
func (b *Builder) removeIntermediate() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.images.Store.RemoveAll(context.Background(), b.dropped); err != nil {
		b.show.note(fmt.Sprintf("remove intermediate images: %v", err))
	}
}

// stage is a stage that is built.
type stage struct {
	*Builder
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
	*Builder
	*session.Sandbox
	engine session.Engine
	has    []oci.Layer // the layers of its files
	taken  int         // how many of them it made itself, and were taken
	needs
}

// needs are the properties of a sandbox that a step depends on, other than its files.
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
	*Builder
	*containerfile.Remote
	mu      sync.Mutex
	sandbox *session.Sandbox
	id      string // what the source is now: sha256:HEX of a file, or a commit
	here    bool   // it is in the sandbox, at path
}
