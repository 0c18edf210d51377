package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"demesne/images"
	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/internal/fsutil"
	"demesne/runner"
	"demesne/runner/client"
	"demesne/runner/ipc"
)

// rootImage is the root file system of a sandbox: an image, a directory, or the host's own tree. An image is found or
// pulled, and locked while a sandbox is made from it. It is unpacked when the runner lacks a copy for its user and
// group ids. Its user must release it.
type rootImage struct {
	ref   imageref.Ref
	image *images.Image // nil unless ref's kind is kept in the store

	client   *images.Client
	hold     io.Closer
	progress func(events.Event)
}

// wanted says when an image is pulled, and for which platform.
type wanted struct {
	pull     images.PullPolicy
	platform string // empty: any that is here, else this machine's
}

// tries is how often findRoot fetches an image that vanished before it was locked.
const tries = 5

// findRoot resolves ref, and pulls the image if necessary. It does not unpack the image. store opens the image store,
// and is called only for an image.
func findRoot(ctx context.Context, store func() (*images.Client, error), ref imageref.Ref, want wanted, progress func(events.Event)) (*rootImage, error) {
	g := &rootImage{ref: ref, progress: progress}
	switch ref.Kind {
	case imageref.Host, "":
		return g, want.none()
	case imageref.Directory:
		return g, errors.Join(want.none(), g.checkDirectory())
	}
	var err error
	if g.client, err = store(); err != nil {
		return nil, err
	}
	g.client.Platform, g.client.NoFetch = want.platform, want.pull == images.PullNever
	for n := 1; ; n++ {
		// A concurrent garbage collection may remove the image after it arrives and before it is locked.
		if err = g.take(ctx, want); !errors.Is(err, images.ErrNotFound) || !fetchable(ref, want.pull) || n == tries {
			break
		}
	}
	return g, NamedImage(ref, err)
}

// fetchable reports whether findRoot can fetch an image that is missing from the store.
func fetchable(ref imageref.Ref, policy images.PullPolicy) bool {
	return policy != images.PullNever && ref.Kind != imageref.Bare && ref.Kind != imageref.Pinned
}

// take fetches the image if necessary, and locks it against garbage collection.
func (g *rootImage) take(ctx context.Context, want wanted) (err error) {
	if want.platform != "" && fetchable(g.ref, want.pull) {
		if img, err := g.client.Store.Lookup(g.ref); err == nil && !want.fits(img.Config) {
			want.pull = images.PullAlways
		}
	}
	if g.image, err = g.client.Ensure(ctx, g.ref, want.pull, g.progress); err != nil {
		return err
	}
	if c := g.image.Config; !want.fits(c) {
		return fmt.Errorf("image %q: is for %s/%s, not for %s", g.ref.Given, c.OS, c.Architecture, want.platform)
	}
	g.hold, err = g.client.Store.Hold(ctx, g.image.Digest)
	return err
}

// fits reports whether an image is for the wanted platform.
func (w wanted) fits(c oci.Config) bool {
	names := strings.Split(w.platform, "/")
	has := []string{c.OS, c.Architecture, c.Variant}
	return w.platform == "" || len(names) >= 2 && len(names) <= 3 && slices.Equal(names, has[:len(names)])
}

// none refuses a platform for files that are not an image.
func (w wanted) none() error {
	if w.platform != "" {
		return fmt.Errorf("platform %q: only an image has one", w.platform)
	}
	return nil
}

// checkDirectory resolves symbolic links once, so that the path shown is the path used.
func (g *rootImage) checkDirectory() error {
	real, err := filepath.EvalSymlinks(g.ref.Path)
	if err != nil {
		return fmt.Errorf("image %q: %w", g.ref.Given, fsutil.Reason(err))
	}
	if info, err := os.Stat(real); err != nil || !info.IsDir() {
		return fmt.Errorf("image %q: is not a directory", g.ref.Given)
	}
	g.ref.Path = real
	return nil
}

// fill sets the base in spec. A non-empty user replaces the image's own.
func (g *rootImage) fill(spec *runner.Spec, user string) {
	spec.Image = g.ref.Given
	switch {
	case g.ref.Kind == imageref.Directory:
		spec.Rootfs = &runner.Rootfs{Dir: g.ref.Path, User: user}
	case g.image != nil:
		spec.Rootfs = g.rootfs(user)
	}
}

func (g *rootImage) rootfs(user string) *runner.Rootfs {
	c := g.image.Config
	if user == "" {
		user = c.User
	}
	r := &runner.Rootfs{
		Digest: g.image.Digest.String(), Store: g.client.Store.Dir(),
		User: user, Env: c.Env, StopSignal: signalNumber(c.StopSignal),
	}
	if c.WorkingDir != "" {
		r.WorkingDir = path.Join("/", c.WorkingDir)
	}
	for _, l := range g.image.Layers {
		r.Layers = append(r.Layers, l.DiffID.String())
	}
	return r
}

// signalNumber parses the stop signal of an image: SIGTERM, TERM, 15, or SIGRTMIN+3, by which systemd ends. It returns 0
// for anything else.
func signalNumber(s string) int {
	name := strings.TrimPrefix(strings.ToUpper(s), "SIG")
	if n, err := strconv.Atoi(name); err == nil && n > 0 && n <= lastSignal {
		return n
	}
	if above, ok := strings.CutPrefix(name, "RTMIN"); ok {
		n, err := strconv.Atoi(strings.TrimPrefix(above, "+"))
		if above == "" || err == nil && n >= 0 && n <= lastSignal-firstRealTime {
			return firstRealTime + n
		}
		return 0
	}
	return int(unix.SignalNum("SIG" + name))
}

// The signals from SIGRTMIN of the C library to SIGRTMAX.
const firstRealTime, lastSignal = 34, 64

// imageWord returns a canonical form of ref: it is equal for equal references, however they were written.
func imageWord(ref imageref.Ref) string {
	switch {
	case ref.Full != "":
		return ref.Full
	case ref.Path != "":
		return string(ref.Kind) + ":" + ref.Path
	}
	return ref.Given
}

// release unlocks the image; a sandbox made from it holds its own lock. g may be nil.
func (g *rootImage) release() {
	if g != nil && g.hold != nil {
		g.hold.Close()
		g.hold = nil
	}
}

// unpackTries bounds how often make unpacks an image. A gc that listed the images before this one was published may remove
// an unpacked layer before the sandbox holds it, once each time it runs.
const unpackTries = 5

// make makes the sandbox through create. If the runner lacks an unpacked copy of the image, it unpacks the image in the
// runner's user namespace and calls create again. Another one, even of this user, may have another id map.
func (g *rootImage) make(ctx context.Context, spec runner.Spec, conn *connection, create func(context.Context, runner.Spec) error) error {
	err := create(ctx, spec)
	for range unpackTries {
		var e *ipc.Error
		if g.image == nil || !errors.As(err, &e) || e.Code != ipc.CodeMissing {
			return err
		}
		there := *g.client
		unpackIn(&there, func() (*client.Userns, error) { return conn.userns(ctx) })
		if err := there.Unpack(ctx, g.image, g.progress); err != nil {
			return NamedImage(g.ref, err)
		}
		err = create(ctx, spec)
	}
	return err
}

// NamedImage adds the image's reference and the known names to an unknown-image error. It returns other errors
// unchanged.
func NamedImage(ref imageref.Ref, err error) error {
	var unknown *images.UnknownError
	if !errors.As(err, &unknown) {
		return err
	}
	maybe := ""
	if unknown.Near != "" {
		maybe = fmt.Sprintf("did you mean %q? ", unknown.Near)
	}
	return &unknownError{fmt.Sprintf("image %q: unknown (%sknown: %s)", ref.Given, maybe, strings.Join(unknown.Known, ", ")), unknown}
}

// unknownError is an images.UnknownError whose text lists the known names.
type unknownError struct {
	text string
	*images.UnknownError
}

func (e *unknownError) Error() string { return e.text }
func (e *unknownError) Unwrap() error { return e.UnknownError }

// OpenImages opens the environment's image store, and locates the programs that fill it.
func OpenImages() (*images.Client, error) {
	dir, err := images.DefaultDir()
	if err != nil {
		return nil, err
	}
	store, err := images.Open(dir)
	if err != nil {
		return nil, err
	}
	program, err := client.FindProgram("demesne-images")
	if err != nil {
		return nil, err
	}
	c := &images.Client{Store: store, Program: program}
	unpackIn(c, client.NewUserns)
	return c, nil
}

// unpackIn makes c unpack and remove layers in the user namespace that open returns, and look there for unpacked layers.
// So both agree on the id map. open is called when that is needed, once.
func unpackIn(c *images.Client, open func() (*client.Userns, error)) {
	store := c.Store.Dir()
	ns := sync.OnceValues(open)
	c.Enter = func(ctx context.Context, cmd *exec.Cmd) error {
		u, err := ns()
		if err != nil {
			return err
		}
		return u.Enter(ctx, cmd, filepath.Join(store, "trees"))
	}
	if plain := client.PlainUserns(); plain != nil {
		c.EnterPlain = func(ctx context.Context, cmd *exec.Cmd) error { return plain.Enter(ctx, cmd, "") }
	}
	c.Unpacked = func(id oci.Digest) bool {
		u, err := ns()
		return err == nil && u.Unpacked(store, string(id))
	}
}

// ParseImage is imageref.Parse, but its error does not repeat the name, which the caller's message has.
func ParseImage(name string) (imageref.Ref, error) {
	ref, err := imageref.Parse(name)
	if inner := errors.Unwrap(err); inner != nil {
		err = inner
	}
	return ref, err
}
