// Package unpack turns the layers of an image, which come from untrusted sources, into directories that overlayfs
// can stack.
//
// New plain entries, which are most of a layer, are written by this package itself (fastpath.go), as umoci would
// write them. umoci's extractor writes the rest. Before that, the blob is hashed while one thread reads and
// decompresses it, the archive is hashed, and every entry is checked (filter). Afterwards the layer is published in
// the cache ([layers]) if the blob's digest and size and the archive's DiffID are right; otherwise it is removed.
// Layers are independent and unpacked in parallel.
//
// Whatever an archive contains, it cannot:
//
//   - Leave its directory. A name that climbs out is refused, and an absolute one is taken from the layer's root.
//     Links are resolved there (umoci, securejoin); a link to a file outside names one inside.
//   - Remove files other than its own. Whiteouts of "", "." and ".." are refused, and so is a whiteout used as a
//     directory.
//   - Make a device. An empty file of mode 0 takes the place of the node. The one node ever made is overlayfs'
//     whiteout, 0:0, which cannot be opened.
//   - Write attributes for overlayfs, a security module or an ACL. Only two kinds of extended attributes are kept:
//     user.* (without user.overlay.*), and a program's security.capability, which the kernel binds to this user
//     namespace.
//   - Own files as an id outside the id map. The owner is then 0, setuid bits are cleared, and
//     user.rootlesscontainers records the real owner. With a single id that applies to every owner but 0.
//   - Fill the disk. [Limits] apply, and the ratio of unpacked to packed size is bounded. A file that would not fit
//     is refused before it is written. Sparse files stay sparse and count in full.
//
// Setuid bits of mapped owners are kept: the program that mounts the layers mounts them nosuid, and other users of
// the host cannot enter the cache directory.
//
// The caller is uid 0 of a user namespace that has the map, in a process of its own: call [Confine] first. After
// that the package needs neither /proc nor a network.
package unpack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/apex/log"
	"github.com/apex/log/handlers/discard"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"

	"demesne/rootfs/layers"
)

// A Layer is one blob of an image.
type Layer struct {
	Digest    digest.Digest // of the blob
	DiffID    digest.Digest // of the uncompressed archive
	Size      int64         // of the blob
	MediaType string
}

// Options say where layers come from and go to.
type Options struct {
	Store  string                                // the image store that holds the cache
	Blobs  func(digest.Digest) (*os.File, error) // opens a blob; this package closes it
	Jobs   int                                   // layers at a time; ≤ 0: as many as there are processors
	Limits Limits                                // of each layer
}

// A State is the progress of a layer.
type State string

const (
	Unpacking State = "unpacking"
	Done      State = "done"    // in the cache, put there by this run
	Present   State = "present" // in the cache already
)

// An Event reports the progress of a layer.
type Event struct {
	Layer Layer
	State State
	Bytes int64 // of the blob, read so far
	Notes Notes // changes to the layer, when Done
}

// progress is the number of bytes of a blob between two events.
const progress = 1 << 20

// waiting is how many layers may wait to be published, with two descriptors each.
const waiting = 64

// Run unpacks each layer that arrives, unless it is in the cache already, until the channel is closed. It stops at
// the first error, which names the layer; finished layers stay in the cache. If another process is unpacking a
// layer, Run waits for it. report may be nil; it is called from one goroutine at a time.
func Run(ctx context.Context, o Options, in <-chan Layer, report func(Event)) error {
	uid, gid, err := layers.OwnMap()
	if err != nil {
		return err
	}
	if o.Jobs <= 0 {
		o.Jobs = runtime.NumCPU()
	}
	log.SetHandler(discard.Default) // umoci's; Notes count the causes of its warnings
	o.Limits = o.Limits.withDefaults()
	u := &unpacker{
		Options: o,
		cache:   layers.Open(o.Store, layers.Key(uid, gid)),
		owners:  owners{uid: uid, gid: gid},
		report:  report,
	}
	u.spare.Store(denseFree)
	return u.run(ctx, in)
}

// An unpacker is the state of one Run.
type unpacker struct {
	Options
	cache  layers.Cache
	owners owners
	spare  atomic.Int64 // remainder of denseFree

	telling sync.Mutex
	report  func(Event)
}

func (u *unpacker) run(ctx context.Context, in <-chan Layer) error {
	made, published := make(chan written, waiting), make(chan error, 1)
	go func() { published <- u.publish(made) }()
	err := u.unpackAll(ctx, in, made)
	close(made)
	return errors.Join(err, <-published)
}

// unpackAll unpacks up to Jobs layers at a time, until the channel is closed or a layer fails.
func (u *unpacker) unpackAll(ctx context.Context, in <-chan Layer, out chan<- written) error {
	g, running := errgroup.WithContext(ctx)
	g.SetLimit(u.Jobs)
	for {
		select {
		case <-running.Done():
			return errors.Join(g.Wait(), ctx.Err())
		case l, more := <-in:
			if !more {
				return g.Wait()
			}
			g.Go(func() error {
				if err := u.unpack(running, l, out); err != nil {
					return fmt.Errorf("unpack layer %q: %w", l.Digest, err)
				}
				return nil
			})
		}
	}
}

func (u *unpacker) tell(e Event) {
	if u.report == nil {
		return
	}
	u.telling.Lock()
	defer u.telling.Unlock()
	u.report(e)
}
