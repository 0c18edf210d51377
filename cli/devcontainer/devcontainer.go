// Package devcontainer builds the image of a devcontainer.json for run, create and agent, and completes their sandboxes. The
// file may come with a repository of a stranger: build/devcontainer reads it and decides what it may ask for.
package devcontainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/build"
	"demesne/build/devcontainer"
	"demesne/cli/mounts"
	"demesne/images"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/runner/client"
	"demesne/session"
)

// Open reads the file that the value of --devcontainer names, and builds its image. image is what the sandbox uses.
func Open(arg string, o Options) (d *Container, image imageref.Ref, err error) {
	if d, err = find(arg); err != nil {
		return nil, image, fmt.Errorf("devcontainer: %w", hinted(err))
	}
	d.Options = o
	defer d.root.Close()
	if err := d.read(); err != nil {
		return nil, image, fmt.Errorf("%s: %w", d.name, hinted(err))
	}
	if o.Agent && d.mode != "" {
		return nil, image, fmt.Errorf("devcontainer %q: an agent's project is always mounted for writing", arg)
	}
	d.tell()
	if image, err = d.image(); err != nil {
		return nil, image, fmt.Errorf("%s: %w", d.name, err)
	}
	return d, image, nil
}

// read reads the file, and finds the directories that it mounts.
func (d *Container) read() error {
	f, err := devcontainer.Read(d.root, d.name)
	if err != nil {
		return err
	}
	env, err := d.Env()
	if err != nil {
		return err
	}
	own, err := d.Mounted()
	if err != nil {
		return err
	}
	place := devcontainer.Place{Dir: d.dir, File: d.name, Mounted: own, Read: d.small, Env: func(name string) (string, bool) {
		for _, e := range slices.Backward(env) {
			if value, ok := strings.CutPrefix(e, name+"="); ok {
				return value, true
			}
		}
		return "", false
	}}
	if d.plan, err = f.Plan(place); err != nil {
		return err
	}
	if err := d.resolve(); err != nil {
		return err
	}
	for _, m := range d.plan.Mounts {
		found, err := d.mount(m)
		if err != nil {
			return fmt.Errorf("mount %q: %w", m.Source, err)
		}
		d.Mounts = append(d.Mounts, found)
	}
	return nil
}

// mount finds a directory of the workspace. The runner follows no symbolic link in the path that it returns.
func (d *Container) mount(m devcontainer.Mount) (found mounts.Mount, err error) {
	real, err := filepath.EvalSymlinks(filepath.Join(d.dir, m.Source))
	if err != nil {
		return found, fsutil.Reason(err)
	}
	if !fsutil.Contains(d.dir, real) {
		return found, errors.New("a symbolic link leads out of the workspace")
	}
	info, err := os.Lstat(real)
	if err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		err = fs.ErrInvalid
	}
	if err != nil {
		return found, fsutil.Reason(err)
	}
	whole := real == d.dir
	found.Mount = runner.Mount{Source: real, Target: m.Target, ReadOnly: m.ReadOnly || d.mode == "ro" || !info.IsDir() || d.mode == "cow" && !whole}
	found.COW = d.mode == "cow" && whole && !found.ReadOnly
	return found, nil
}

// tell reports what the file asks for and does not get.
func (d *Container) tell() {
	lines := slices.Clone(d.plan.Notes)
	for _, port := range d.plan.Ports {
		n, err := strconv.ParseUint(port, 10, 16)
		switch {
		case err != nil:
			lines = append(lines, fmt.Sprintf("forwardPorts: %s is not forwarded", port))
		case !d.Published(uint16(n)):
			lines = append(lines, fmt.Sprintf("forwardPorts: %d is not forwarded; --publish %d:%d does it", n, n, n))
		}
	}
	var memory unix.Sysinfo_t
	var disk unix.Statfs_t
	if dir, err := client.SandboxRoot(); err != nil || unix.Statfs(dir, &disk) != nil {
		unix.Statfs(d.dir, &disk)
	}
	unix.Sysinfo(&memory)
	lines = append(lines, d.plan.Needs.Lacks(runtime.NumCPU(), memory.Totalram*uint64(memory.Unit), disk.Bavail*uint64(disk.Bsize))...)
	d.say(lines)
}

func (d *Container) say(lines []string) {
	for _, line := range lines {
		d.Say(fmt.Sprintf("%s: devcontainer.json: %s", d.Verb, text.SafeLine(line)))
	}
}

// image returns the image that the file names, or builds it. Only an image of a registry, of the store or of a recipe can
// be named: a directory or archive would be a file of this machine.
func (d *Container) image() (ref imageref.Ref, err error) {
	base, name := d.plan.Name, d.imageName()
	if d.plan.Build != nil {
		if base = name; d.plan.HasFeatures() {
			base += "-base"
		}
		if err := d.build(base); err != nil {
			return ref, err
		}
	} else if ref, err = session.ParseImage(base); err != nil {
		return ref, fmt.Errorf("image %q: %w", base, err)
	} else if k := ref.Kind; k != imageref.Registry && k != imageref.Bare && k != imageref.Recipe {
		return ref, fmt.Errorf("image %q: a devcontainer.json can only name an image of a registry or of demesne images", base)
	}
	if d.plan.HasFeatures() {
		if err := d.install(base, name); err != nil {
			return ref, fmt.Errorf("features: %w", err)
		}
	}
	if !d.Built() {
		return ref, nil
	}
	return session.ParseImage(name)
}

// build builds the image of the file under a name.
// The build has the context and the directory of the Dockerfile as descriptors, which lie in the workspace whatever
// becomes of their paths.
func (d *Container) build(name string) error {
	b := d.plan.Build
	info, err := d.root.Lstat(b.File)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("is not a regular file")
	}
	if err != nil {
		return fmt.Errorf("build: dockerfile %q: %w", b.File, fsutil.Reason(err))
	}
	dir, err := d.root.Open(b.Context)
	if err != nil {
		return fmt.Errorf("build: context %q: %w", b.Context, fsutil.Reason(err))
	}
	defer dir.Close()
	beside, err := d.root.Open(filepath.Dir(b.File))
	if err != nil {
		return fmt.Errorf("build: dockerfile %q: %w", b.File, fsutil.Reason(err))
	}
	defer beside.Close()
	options := build.Options{File: "/proc/self/fd/5/" + filepath.Base(b.File), Target: b.Target, Args: b.Args, Pull: d.Pull == images.PullAlways}
	return d.run(name, options, build.Streams{Files: []*os.File{dir, beside}})
}

// Build builds the image of a directory with a Containerfile, and returns its name. It follows no symbolic link in the path.
func Build(dir string, o Options) (ref imageref.Ref, err error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return ref, err
	}
	fd, err := fsutil.Openat2(unix.AT_FDCWD, abs, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return ref, fmt.Errorf("build %q: %w", dir, fsutil.Reason(err))
	}
	context := os.NewFile(uintptr(fd), abs)
	defer context.Close()
	d := &Container{Options: o, dir: abs, name: "Containerfile"}
	name := d.imageName()
	if err := d.run(name, build.Options{Pull: o.Pull == images.PullAlways}, build.Streams{Files: []*os.File{context}}); err != nil {
		return ref, err
	}
	return session.ParseImage(name)
}

// imageName returns the name of the image that is built from the file: the directory's name, and a hash of the path.
func (d *Container) imageName() string {
	name := strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' || 'a' <= r && r <= 'z' {
			return r
		}
		return -1
	}, strings.ToLower(filepath.Base(d.dir)))
	return fmt.Sprintf("%s%.40s:%s", devcontainer.ImagePrefix, cmp.Or(name, "project"), devcontainer.ID(filepath.Join(d.dir, d.name))[:12])
}

// Configured completes a sandbox with what its image says. own means that the command line names a user.
func (d *Container) Configured(c *session.CreateOptions, image oci.Config, own bool) error {
	p := d.plan
	own = own || d.Agent
	writable := slices.ContainsFunc(d.Mounts, func(m mounts.Mount) bool { return !m.ReadOnly })
	if err := p.Image(imageHas(image), writable && !own); err != nil {
		return fmt.Errorf("%s: %w", d.name, err)
	}
	if d.Agent && p.Hooks() {
		p.Notes = append(p.Notes, "its commands are not executed for an agent; RUN in the Dockerfile, or --branch --setup, prepares its sandbox")
	}
	d.say(p.Notes)
	c.Spec.Defaults.Env = slices.Concat(p.Env, c.Spec.Defaults.Env)
	switch {
	case own:
	case p.AsRoot:
		c.User = "0"
	default:
		c.User = p.User
	}
	return nil
}

// Wrap returns a command that executes the hooks before argv. persistent means that the sandbox outlives the command. A
// nil Container has no hooks.
func (d *Container) Wrap(argv []string, persistent bool) []string {
	if d == nil {
		return argv
	}
	return d.plan.Wrap(argv, persistent)
}

// Hooks executes the hooks in a persistent sandbox. It removes a new sandbox if one fails.
func (d *Container) Hooks(ctx context.Context, s *session.Service, b *session.Sandbox) (code int, err error) {
	if d == nil || !d.plan.Hooks() {
		return 0, nil
	}
	argv := d.plan.Wrap([]string{"/bin/sh", "-c", ":"}, true)
	done, err := s.Exec(ctx, b.ID, session.RunOptions{Command: runner.Command{Argv: argv}, Stdout: d.Stderr, Stderr: d.Stderr}, session.Callbacks{})
	if err == nil && done != nil {
		code = done.ExitCode
	}
	if (err != nil || code != 0) && !b.Existing {
		err = errors.Join(err, s.Discard(b.ID))
	}
	return code, err
}
