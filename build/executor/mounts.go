package executor

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"demesne/build/containerfile"
	"demesne/images"
	"demesne/runner"
	"demesne/runner/tarball"
)

// mounts are the mounts of one RUN, and what it needs on the host for them.
type mounts struct {
	*stage
	list   []runner.Mount
	inputs []runner.Input
	tmpfs  []runner.Tmpfs
	owned  []tarball.Owning  // directories that the command's user gets first
	caches map[string]string // directories of caches, by id
	env    []string
	undo   []func()
}

// mountsOf prepares the mounts of a RUN. The caller must close them, also after an error.
func (s *stage) mountsOf(ctx context.Context, r *containerfile.Run) (*mounts, error) {
	m := &mounts{stage: s, caches: map[string]string{}}
	if err := m.lockCaches(ctx, r.Mounts); err != nil {
		return m, err
	}
	for _, one := range r.Mounts {
		if err := m.add(ctx, one); err != nil {
			return m, fmt.Errorf("RUN --mount=type=%s: %w", one.Type, err)
		}
	}
	if err := m.bootstraps(r.Argv); err != nil {
		return m, err
	}
	if len(r.Script) == 0 {
		return m, nil
	}
	dir, err := m.temporary()
	if err != nil {
		return m, err
	}
	return m, m.file(dir, "script", containerfile.ScriptPath, r.Script, 0o755)
}

func (m *mounts) add(ctx context.Context, one *instructions.Mount) error {
	target := m.st.Resolve(one.Target)
	switch one.Type {
	case instructions.MountTypeCache:
		return m.cache(ctx, one, target)
	case instructions.MountTypeBind:
		return m.bind(ctx, one, target)
	case instructions.MountTypeTmpfs:
		m.tmpfs = append(m.tmpfs, runner.Tmpfs{Target: target, Size: one.SizeLimit})
		return nil
	case instructions.MountTypeSecret:
		return m.secret(one)
	case instructions.MountTypeSSH:
		return m.ssh(one)
	}
	return errors.ErrUnsupported
}

func (m *mounts) close() {
	for _, f := range m.undo {
		f()
	}
}

// temporary makes a private directory that is removed with the mounts.
func (m *mounts) temporary() (string, error) {
	dir, remove, err := tempDir()
	if err == nil {
		m.undo = append(m.undo, remove)
	}
	return dir, err
}

// file mounts a file with this content.
func (m *mounts) file(dir, name, target string, content []byte, mode os.FileMode) error {
	at := filepath.Join(dir, name)
	if err := os.WriteFile(at, content, mode); err != nil {
		return fmt.Errorf("write %q: %w", name, err)
	}
	if err := os.Chmod(at, mode); err != nil {
		return err
	}
	m.list = append(m.list, runner.Mount{Source: at, Target: target, ReadOnly: true})
	return nil
}

// lockCaches locks the caches of a RUN, in the order of their ids, so that no two steps wait for each other.
func (m *mounts) lockCaches(ctx context.Context, all []*instructions.Mount) error {
	all = slices.DeleteFunc(slices.Clone(all), func(one *instructions.Mount) bool { return one.Type != instructions.MountTypeCache })
	slices.SortStableFunc(all, func(a, b *instructions.Mount) int { return strings.Compare(m.cacheID(a), m.cacheID(b)) })
	for _, one := range all {
		id := m.cacheID(one)
		if m.caches[id] != "" {
			continue
		}
		key, err := m.idMap(ctx)
		if err != nil {
			return err
		}
		dir, unlock, err := images.CacheDir(ctx, m.images.Store, key+"\x00"+id, string(one.CacheSharing))
		if err != nil {
			return err
		}
		m.caches[id] = dir
		m.undo = append(m.undo, unlock)
	}
	return nil
}

// idMap names the id map of the runner. A cache is for one map: the owners of its files mean nothing under another.
func (m *mounts) idMap(ctx context.Context) (string, error) {
	e, err := m.sessions.Engine(ctx)
	if err != nil {
		return "", err
	}
	u, err := e.Userns()
	if err != nil {
		return "", fmt.Errorf("find id map of runner: %w", err)
	}
	return u.Key, nil
}

func (m *mounts) cacheID(one *instructions.Mount) string {
	return cmp.Or(one.CacheID, m.st.Resolve(one.Target))
}

// cache mounts a directory that is kept between builds. A new one begins with the files that from and source name.
func (m *mounts) cache(ctx context.Context, one *instructions.Mount, target string) error {
	dir := m.caches[m.cacheID(one)]
	if one.From == "" && one.Source != "" {
		return fmt.Errorf("source without from: %w", errors.ErrUnsupported)
	}
	files, err := os.ReadDir(dir)
	if err == nil && one.From != "" && len(files) == 0 {
		err = m.fill(ctx, dir, bound(one))
	}
	if err != nil {
		return err
	}
	mode := os.FileMode(0o755)
	if one.Mode != nil {
		mode = os.FileMode(*one.Mode) & 0o777
	}
	if err := os.Chmod(dir, mode); err != nil {
		return err
	}
	if o := (tarball.Owning{Path: target, UID: number(one.UID), GID: number(one.GID)}); o.UID != 0 || o.GID != 0 {
		m.owned = append(m.owned, o) // the caller's files are uid 0's inside
	}
	m.list = append(m.list, runner.Mount{Source: dir, Target: target, ReadOnly: one.ReadOnly})
	return nil
}

func number(n *uint64) int {
	if n == nil {
		return 0
	}
	return int(*n)
}

// bind mounts files of the context, of a stage or of an image. They are copied first, so that the ignore file applies, and
// that the command changes only the copy.
func (m *mounts) bind(ctx context.Context, one *instructions.Mount, target string) error {
	dir, err := m.temporary()
	if err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	c := bound(one)
	if err := m.fill(ctx, dir, c); err != nil {
		return err
	}
	from, source := dir, c.Sources[0]
	if names, err := os.ReadDir(dir); err == nil && len(names) == 1 && names[0].Type().IsRegular() && names[0].Name() == path.Base(source) && !m.isDir(one, source) {
		if !one.ReadOnly {
			return fmt.Errorf("rw for the single file %q: %w: mount its directory", one.Source, errors.ErrUnsupported)
		}
		from = filepath.Join(dir, names[0].Name())
	}
	m.list = append(m.list, runner.Mount{Source: from, Target: target, ReadOnly: one.ReadOnly})
	return nil
}

// fill copies the sources of c into a directory of the host.
func (m *mounts) fill(ctx context.Context, dir string, c *containerfile.Copy) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	r, w := io.Pipe()
	go func() {
		t := tar.NewWriter(w)
		err := m.send(ctx, t, c, &placing{})
		if err == nil {
			err = t.Close()
		}
		w.CloseWithError(err)
	}()
	_, err = tarball.Unpack(r, root, tarball.Options{Links: true, As: ""})
	r.CloseWithError(errors.New("the copy has ended"))
	return err
}

// bound returns the copy that a bind mount is made with.
func bound(m *instructions.Mount) *containerfile.Copy {
	source := strings.TrimPrefix(path.Clean("/"+m.Source), "/")
	return &containerfile.Copy{From: m.From, Sources: []string{cmp.Or(source, ".")}}
}

// isDir reports whether the source of a bind from the context is a directory.
func (m *mounts) isDir(one *instructions.Mount, source string) bool {
	if one.From != "" {
		return false
	}
	info, err := m.context.root.Stat(source + "/.")
	return err == nil && info.IsDir()
}

// secretsDir is where secrets are by default, as in docker build.
const secretsDir = "/run/secrets/"

func (m *mounts) secret(one *instructions.Mount) error {
	id := cmp.Or(one.CacheID, one.Source, path.Base(one.Target))
	value, ok, err := m.secretOf(id)
	switch {
	case err != nil:
		return err
	case !ok && one.Required:
		return fmt.Errorf("no secret %q was given: --secret id=%s,src=FILE", id, id)
	case !ok:
		return nil
	}
	if one.Env != nil {
		name := *one.Env
		if name == "" {
			name = id
		}
		m.env = append(m.env, name+"="+string(value))
		if one.Target == "" {
			return nil
		}
	}
	target := secretsDir + id
	if one.Target != "" {
		target = m.st.Resolve(one.Target)
	}
	dir, err := m.temporary()
	if err != nil {
		return err
	}
	mode := os.FileMode(0o400)
	if one.Mode != nil {
		mode = os.FileMode(*one.Mode) & 0o777
	}
	if number(one.UID) != 0 || number(one.GID) != 0 {
		mode |= mode>>6&0o007 | mode>>3&0o070 // the file is uid 0's inside; no other command is in this sandbox
	}
	return m.file(dir, "secret", target, value, mode)
}
