// Package unpack turns the layers of an image, which anybody may have made, into directories
// that overlayfs can stack.
//
// umoci's extractor writes the files, but for what is new and plain, which is most of a layer and
// made as umoci would make it (quick.go); this package stands before and behind both. Before: the
// blob is hashed while it is read and decompressed by one thread, the archive is hashed, and each
// entry is judged before anything is done with it (filter). Behind: a layer is published in the
// cache ([layers]) when the blob's digest and size and the archive's DiffID were right, and nothing
// of it stays otherwise. Layers are independent and unpacked side by side.
//
// What an archive cannot do, whatever it says:
//
//   - Leave its directory. A name that climbs out is refused; an absolute one is taken from the layer's
//     root; links are resolved there (umoci, securejoin); a link to a file outside names one inside.
//   - Remove anything but its own: whiteouts of "", "." and ".." are refused, and one that is
//     used as a directory.
//   - Make a device. In place of a node there is an empty file of mode 0. The one node that is ever
//     made is overlayfs' whiteout, 0:0, which opens nothing.
//   - Speak to overlayfs, a security module or an ACL: of extended attributes user.* (without
//     user.overlay.*) and a program's security.capability stay, which the kernel binds to this
//     user namespace.
//   - Own what the id map does not have: the owner is 0 then, setuid bits go, and the real one is kept in
//     user.rootlesscontainers. With a single id that is every owner but 0.
//   - Fill the disk: [Limits], a bound of what is in it to its size, and a file that would not fit is refused before it
//     is written. Sparse files stay sparse and count in full.
//
// Setuid bits of owners that are mapped stay: who mounts the layers mounts them nosuid, and the cache is
// a directory that other users of the host cannot enter.
//
// The caller is uid 0 of a user namespace that has the map, in a process that does nothing else: call
// [Confine] first. The package needs no /proc after that, and no network.
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
	DiffID    digest.Digest // of the archive in it
	Size      int64         // of the blob
	MediaType string
}

// Options say where layers come from and go to.
type Options struct {
	Store  string                                // the image store that has the cache
	Blobs  func(digest.Digest) (*os.File, error) // opens a blob; it is closed here
	Jobs   int                                   // layers at a time; ≤ 0: as many as there are processors
	Limits Limits                                // of each layer
}

// A State is what has become of a layer.
type State string

const (
	Unpacking State = "unpacking"
	Done      State = "done"    // in the cache, put there now
	Present   State = "present" // in the cache, put there by somebody else
)

// An Event tells how a layer gets on.
type Event struct {
	Layer Layer
	State State
	Bytes int64 // of the blob that were read
	Notes Notes // what was changed, when Done
}

// progress is how many bytes of a blob are between two events.
const progress = 1 << 20

// waiting is how many layers may wait for the disk to take them, with two descriptors each.
const waiting = 64

// Run unpacks each layer that arrives, those that are in the cache already excepted, until the
// channel is closed. It stops at the first error, which names the layer; layers that are done by then stay.
// A layer that another process is unpacking is waited for. report may be nil; it is called
// from one goroutine at a time.
func Run(ctx context.Context, o Options, in <-chan Layer, report func(Event)) error {
	uid, gid, err := layers.OwnMap()
	if err != nil {
		return err
	}
	if o.Jobs <= 0 {
		o.Jobs = runtime.NumCPU()
	}
	log.SetHandler(discard.Default) // umoci's: what it warns of is in Notes
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
	spare  atomic.Int64 // what is left of denseFree

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

// unpackAll unpacks some layers at a time, until there are no more or one cannot be.
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
