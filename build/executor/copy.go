package executor

import (
	"archive/tar"
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"demesne/build/containerfile"
	"demesne/images/oci"
	"demesne/runner/tarball"
)

// copy executes a COPY, ADD or WORKDIR in the stage's sandbox.
func (s *stage) copy(ctx context.Context, c *containerfile.Copy) error {
	p, err := newPlacing(c)
	if err != nil {
		return err
	}
	l := tarball.Layout{Dest: path.Clean(c.Dest), Into: c.Into(), Owner: c.Chown, Mode: p.chmod.all}
	if s.Epoch != nil {
		l.Time = s.Epoch.Unix()
	}
	for _, r := range c.Remotes {
		if err := s.fetchOf(r).provide(ctx); err != nil {
			return fmt.Errorf("ADD %s: %w", r.URL, err)
		}
	}
	return s.sandbox.Lay(ctx, l, func(to io.Writer) error {
		out := bufio.NewWriterSize(to, copyBuffer)
		w := tar.NewWriter(out)
		if err := s.send(ctx, w, c, p); err != nil {
			return err
		}
		return cmp.Or(w.Close(), out.Flush())
	})
}

// send writes all sources of c as one tar.
func (s *stage) send(ctx context.Context, w *tar.Writer, c *containerfile.Copy, p *placing) error {
	for _, f := range c.Contents {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.Path, Mode: p.chmod.mode(0o644, false), Size: int64(len(f.Data)), ModTime: s.now(), Format: tar.FormatPAX, PAXRecords: map[string]string{tarball.FileRecord: "1"}}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.WriteString(w, f.Data); err != nil {
			return err
		}
	}
	if c.From != "" {
		return s.relay(ctx, w, c, p)
	}
	for _, r := range c.Remotes {
		if err := s.sendRemote(ctx, w, c, r, p); err != nil {
			return err
		}
	}
	sum := sha256.New()
	for _, pattern := range c.Sources {
		names, err := s.context.find(pattern, c.Parents)
		if err != nil {
			return err
		}
		for _, name := range names {
			if c.Add {
				err = s.addLocal(ctx, w, sum, c, name, p)
			} else {
				err = s.context.send(ctx, w, sum, name, p)
			}
			if err != nil {
				return err
			}
		}
	}
	if len(c.Sources) > 0 {
		s.sent = append(s.sent, oci.DigestFrom(sum.Sum(nil)))
	}
	return nil
}

// relay passes files of another stage or image on. They come from a sandbox, and go into one.
func (s *stage) relay(ctx context.Context, w *tar.Writer, c *containerfile.Copy, p *placing) error {
	from, err := s.origin(ctx, c.From)
	if err != nil {
		return err
	}
	x, err := from.opened(ctx)
	if err != nil {
		return err
	}
	g := tarball.Gathering{Deep: c.Parents, Omit: ownFiles}
	for _, source := range c.Sources {
		g.Paths = append(g.Paths, path.Join("/", source))
	}
	return x.Gather(ctx, g, func(r io.Reader) error {
		return eachMember(r, c.From, func(m member, content io.Reader) error { return forward(w, m, p, content) })
	})
}

// eachMember calls visit for the members of a tar from [client.Sandbox.Gather].
func eachMember(r io.Reader, of string, visit func(member, io.Reader) error) error {
	in := tar.NewReader(r)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.Copy(io.Discard, io.LimitReader(r, 1<<20)) // its writer waits for a reader
			return err
		}
		if err != nil {
			return fmt.Errorf("read files of %s: %w", of, err)
		}
		base := strings.TrimSuffix(h.PAXRecords[tarball.BaseRecord], "/")
		if err := visit(member{h, base, h.Name == base && h.Typeflag != tar.TypeDir}, in); err != nil {
			return err
		}
	}
}

// content sums up the files that a step reads.
func (s *stage) content(ctx context.Context, step *containerfile.Step) (all []oci.Digest, err error) {
	if step.Copy != nil {
		return s.contentOf(ctx, step.Copy)
	}
	for _, m := range step.Run.Mounts {
		if m.Type != instructions.MountTypeBind {
			continue
		}
		some, err := s.contentOf(ctx, bound(m))
		if err != nil {
			return nil, fmt.Errorf("RUN --mount=type=bind: %w", err)
		}
		all = append(all, some...)
	}
	return all, nil
}

// contentOf sums up the sources of a COPY.
func (s *stage) contentOf(ctx context.Context, c *containerfile.Copy) ([]oci.Digest, error) {
	if len(c.Sources)+len(c.Remotes) == 0 {
		return nil, nil
	}
	if c.From != "" {
		from, err := s.origin(ctx, c.From)
		if err != nil {
			return nil, err
		}
		return from.below, nil
	}
	p, err := newPlacing(c)
	if err != nil {
		return nil, err
	}
	var all []oci.Digest
	for _, r := range c.Remotes {
		id, err := s.fetchOf(r).resolve(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, oci.DigestOf(fmt.Appendf(nil, "remote %q %s %q %t\n", r.Name, id, r.Subdir, r.KeepGit)))
	}
	if len(c.Sources) == 0 {
		return all, nil
	}
	sum := sha256.New()
	for _, pattern := range c.Sources {
		names, err := s.context.find(pattern, c.Parents)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if err := s.context.sum(ctx, sum, name, func(m member) bool { return p.rename(m) != "" }); err != nil {
				return nil, err
			}
		}
	}
	return append(all, oci.DigestFrom(sum.Sum(nil))), nil
}

func diffIDs(layers []oci.Layer) (all []oci.Digest) {
	for _, l := range layers {
		all = append(all, l.DiffID)
	}
	return all
}

// origin returns the stage that a --from names: a finished one, or an image as a stage.
func (s *stage) origin(ctx context.Context, name string) (*stage, error) {
	if on := s.plan.From(name); on != nil {
		return s.results[on].stage, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.others[name] == nil {
		img, err := s.find(ctx, name, "")
		if err != nil {
			return nil, err
		}
		s.others[name] = &stage{Builder: s.Builder, layers: img.Layers, below: diffIDs(img.Layers)}
	}
	return s.others[name], nil
}

// opened returns a sandbox with the files of a finished stage.
func (s *stage) opened(ctx context.Context) (*sandbox, error) {
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.sandbox != nil && equalLayers(s.sandbox.has, s.layers) {
		return s.sandbox, nil
	}
	s.close()
	var err error
	s.sandbox, err = s.open(ctx, s.layers, needs{})
	return s.sandbox, err
}

func equalLayers(a, b []oci.Layer) bool {
	return len(a) == len(b) && (len(a) == 0 || a[len(a)-1].DiffID == b[len(b)-1].DiffID)
}
