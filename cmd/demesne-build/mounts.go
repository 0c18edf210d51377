package main

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
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"demesne/images"
	"demesne/images/build"
	"demesne/runner"
	"demesne/runner/tarball"
)

// mounts are the mounts of one RUN, and what it needs on the host for them.
type mounts struct {
	*stage
	list   []runner.Mount
	inputs []runner.Input
	env    []string
	undo   []func()
}

// mountsOf prepares the mounts of a RUN. The caller must close them, also after an error.
func (s *stage) mountsOf(ctx context.Context, r *build.Run) (*mounts, error) {
	m := &mounts{stage: s}
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
	return m, m.file(dir, "script", build.ScriptPath, r.Script, 0o755)
}

func (m *mounts) add(ctx context.Context, one *instructions.Mount) error {
	target := m.st.Resolve(one.Target)
	switch one.Type {
	case instructions.MountTypeCache:
		return m.cache(ctx, one, target)
	case instructions.MountTypeBind:
		return m.bind(ctx, one, target)
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

// cache mounts a directory that is kept between builds.
func (m *mounts) cache(ctx context.Context, one *instructions.Mount, target string) error {
	if one.From != "" || one.Source != "" {
		return fmt.Errorf("from and source: %w", errors.ErrUnsupported)
	}
	id := one.CacheID
	if id == "" {
		id = target
	}
	dir, unlock, err := images.CacheDir(ctx, m.images.Store, id, one.CacheSharing == instructions.MountSharingLocked)
	if err != nil {
		return err
	}
	m.undo = append(m.undo, unlock)
	m.list = append(m.list, runner.Mount{Source: dir, Target: target, ReadOnly: one.ReadOnly})
	return nil
}

// bind mounts files of the context, of a stage or of an image. They are copied first, so that the ignore file counts, and
// the command cannot change them.
func (m *mounts) bind(ctx context.Context, one *instructions.Mount, target string) error {
	dir, err := m.temporary()
	if err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	c := bound(one)
	source := c.Sources[0]
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
	if err != nil {
		return err
	}
	from := dir
	if names, err := os.ReadDir(dir); err == nil && len(names) == 1 && names[0].Type().IsRegular() && names[0].Name() == path.Base(source) && !m.isDir(one, source) {
		from = filepath.Join(dir, names[0].Name())
	}
	m.list = append(m.list, runner.Mount{Source: from, Target: target, ReadOnly: true})
	return nil
}

// bound returns the copy that a bind mount is made with.
func bound(m *instructions.Mount) *build.Copy {
	source := strings.TrimPrefix(path.Clean("/"+m.Source), "/")
	return &build.Copy{From: m.From, Sources: []string{cmp.Or(source, ".")}}
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
	id := one.CacheID
	if id == "" {
		id = path.Base(one.Target)
	}
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
	return m.file(dir, "secret", target, value, mode)
}

// ssh lets the command talk to an agent of this machine.
func (m *mounts) ssh(one *instructions.Mount) error {
	id := one.CacheID
	if id == "" {
		id = "default"
	}
	socket, ok := m.agents[id]
	switch {
	case !ok && one.Required:
		return fmt.Errorf("no agent %q was given: --ssh %s", id, id)
	case !ok:
		return nil
	}
	name := "ssh-" + id
	m.inputs = append(m.inputs, runner.Input{Path: socket, Name: name, Socket: true})
	m.env = append(m.env, "SSH_AUTH_SOCK="+runner.AsideDir+"/in/"+name)
	return nil
}
