// Package imagebuild executes the MCP tool that builds an image, by package build.
package imagebuild

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"demesne/build"
	"demesne/images"
	"demesne/images/imageref"
	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/mcp/toolbackend/sandboxes"
	"demesne/runner"
	"demesne/runner/tarball"
	"demesne/session"
	"demesne/session/operator"
)

// builtPrefix begins the names of images that models built: see operator.Built. maxBuilt is how many are kept.
const (
	builtPrefix = "local/built-by-models/"
	maxBuilt    = 16
)

// buildFile is the Containerfile in a context. Inputs have other names.
const buildFile = ".demesne.containerfile"

// Builder builds images for models.
type Builder struct {
	acquire func(context.Context) (done func(), err error) // waits until a build may run
	allowed []string                                       // the references that a build may use: a model is not the operator
}

// New returns a Builder for callers. They may use the images of their policy, and that one.
func New(of *sandboxes.Sandboxes, image string) *Builder {
	return &Builder{of.Acquire, append(imageref.Entries(of.Policy.AllowedImages), image)}
}

// Build builds an image from the Containerfile and the inputs of a request.
func (b *Builder) Build(ctx context.Context, r session.Request, w session.Callbacks) (image, digest string, said session.Tail, err error) {
	done, err := b.acquire(ctx)
	if err != nil {
		return "", "", said, err
	}
	defer done()
	in, out, err := os.Pipe()
	if err != nil {
		return "", "", said, err
	}
	packed := make(chan error, 1)
	go func() { packed <- errors.Join(packContext(out, r), out.Close()) }()
	name := builtPrefix + strings.ToLower(rand.Text()[:12])
	log := &buildLog{tell: w.Progress}
	log.kept.Most = runner.StderrKept
	result, err := build.Run(ctx, buildOptions(name, b.allowed, r), build.Streams{Stdin: in, Log: log})
	in.Close()
	if perr := <-packed; err != nil {
		return "", "", said, log.failure(ctx, err, perr)
	}
	forgetBuilt(context.WithoutCancel(ctx), name) // ignore failures: the next build tries again
	return name, result.Digest, log.tail(), nil
}

// buildOptions returns the options of a build, whose context is a tar on stdin.
func buildOptions(name string, allowed []string, r session.Request) build.Options {
	l := r.Create.Spec.Limits
	return build.Options{
		Context: "-", File: buildFile, Names: []string{name}, Progress: "plain",
		Egress: r.Create.Egress.Mode, Allow: r.Create.Egress.Allow, Images: slices.Concat(allowed, []string{operator.Built}), MaxLayers: l.Disk,
		Limits: runner.Limits{Memory: max(l.Memory, 0), CPUs: max(l.CPUs, 0), PIDs: max(l.PIDs, 0), Disk: max(l.Disk, 0)},
	}
}

// packContext writes a context as a tar: the Containerfile, and the inputs by their names. It follows no link.
func packContext(w io.Writer, r session.Request) error {
	head := tar.NewWriter(w)
	err := head.WriteHeader(&tar.Header{Name: buildFile, Mode: 0o600, Size: int64(len(r.Run.Stdin))})
	if err == nil {
		_, err = io.WriteString(head, r.Run.Stdin)
	}
	if err == nil {
		err = head.Flush()
	}
	if err != nil {
		return err
	}
	var all tarball.Sources
	for _, in := range r.Create.Spec.Inputs {
		if in.Name == buildFile {
			return fmt.Errorf("input %q: the Containerfile has that name", in.Name)
		}
		// The model's paths were resolved. A link there is newer, and may come from a sandbox.
		fd, err := fsutil.Openat2(unix.AT_FDCWD, filepath.Dir(in.Path), &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
		if err != nil {
			return fmt.Errorf("input %q: %w", in.Path, err)
		}
		root, err := os.OpenRoot(fsutil.FDPath(fd))
		unix.Close(fd)
		if err != nil {
			return fmt.Errorf("input %q: %w", in.Path, err)
		}
		defer root.Close()
		all.Add(root, filepath.Base(in.Path), in.Name)
	}
	_, err = all.Pack(w, tarball.Limits{Bytes: r.Create.Spec.Limits.Disk})
	return err
}

// forgetBuilt removes the oldest images that models built, beyond those that are kept. It leaves images in use.
func forgetBuilt(ctx context.Context, newest string) {
	c, err := session.OpenImages()
	if err != nil {
		return
	}
	all, err := c.Store.List()
	c.Store.Close()
	if err != nil {
		return
	}
	var names []imageref.Ref
	for _, img := range all {
		for _, n := range img.Names {
			if ref, err := session.ParseImage(n); err == nil && strings.Contains(n, builtPrefix) && !strings.Contains(n, newest) {
				if ok, stored := imageref.Permitted(n, []string{operator.Built}); ok && stored {
					names = append(names, ref)
				}
			}
		}
	}
	for _, ref := range names[:max(0, len(names)-maxBuilt+1)] {
		if err := build.Drop(ctx, ref); err != nil && !errors.Is(err, images.ErrInUse) {
			return
		}
	}
}

// buildLog keeps the end of what a build says.
type buildLog struct {
	mu   sync.Mutex
	kept text.Last
	tell func(string) // may be nil
}

func (l *buildLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tell != nil {
		lines := bytes.Split(bytes.TrimSpace(p), []byte("\n"))
		l.tell(text.SafeLine(string(lines[len(lines)-1])))
	}
	return l.kept.Write(p)
}

func (l *buildLog) tail() session.Tail {
	l.mu.Lock()
	defer l.mu.Unlock()
	return session.Tail{Text: strings.ToValidUTF8(string(l.kept.End(runner.StderrKept)), "\uFFFD"), Bytes: l.kept.Bytes, Cut: l.kept.Bytes > runner.StderrKept}
}

// failure returns why a build failed, with the end of its log.
func (l *buildLog) failure(ctx context.Context, err, packed error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	} else if packed != nil && !errors.Is(packed, unix.EPIPE) {
		err = packed
	}
	said := l.tail().Text
	const most = 4 << 10
	if len(said) > most {
		said = "…" + strings.ToValidUTF8(said[len(said)-most:], "")
	}
	return fmt.Errorf("build: %w\n%s", err, strings.TrimSpace(said))
}
