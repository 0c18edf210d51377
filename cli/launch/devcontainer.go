package launch

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
	"demesne/cli/stream"
	"demesne/images"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/runner/client"
	"demesne/session"
)

// devContainer is the devcontainer.json of --devcontainer. The file may come with a repository of a stranger: see package
// devcontainer.
type devContainer struct {
	dir    string // the workspace, without symbolic links
	root   *os.Root
	name   string // of the file, in dir
	mode   string // of the workspace: rw, ro or cow
	plan   *devcontainer.Plan
	mounts []Mount
	agent  bool // for an agent, which has the project at its own path, a user of its own, and no hooks
}

func (o *mountOptions) SetDevcontainer(arg string) error {
	o.Asked = &arg
	return nil
}

// OpenDevcontainer reads the file that --devcontainer names, builds its image, and sets the options that it decides.
func (o *Options) OpenDevcontainer(args []string) error {
	switch {
	case o.Asked == nil:
		return nil
	case o.Image.Kind != "":
		return errors.New("--devcontainer and --image: cannot be combined")
	case *o.Asked == "" && len(args) > 0 && isDirectory(args[0]):
		return text.Hinted(fmt.Errorf("command %q: is a directory", args[0]), "--devcontainer=%s -- CMD", args[0])
	}
	d, err := findDevcontainer(*o.Asked)
	if err != nil {
		return fmt.Errorf("devcontainer: %w", devHinted(err))
	}
	defer d.root.Close()
	if err := d.read(o); err != nil {
		return fmt.Errorf("%s: %w", d.name, devHinted(err))
	}
	if d.agent = o.Verb == "agent"; d.agent && d.mode != "" {
		return fmt.Errorf("devcontainer %q: an agent's project is always mounted for writing", *o.Asked)
	}
	d.tell(o)
	if err := d.setImage(o); err != nil {
		return fmt.Errorf("%s: %w", d.name, err)
	}
	if len(args) > 0 && o.Entrypoint == nil && o.Shell == nil {
		o.Entrypoint = &[]string{} // a command of a dev container does not go through the image's entrypoint
	}
	o.dev = d
	return nil
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// devHinted gives an error of package devcontainer its hint.
func devHinted(err error) error {
	var refused *devcontainer.Refused
	if errors.As(err, &refused) {
		return text.Hinted(err, "%s", refused.Hint)
	}
	return err
}

func findDevcontainer(arg string) (d *devContainer, err error) {
	where, mode := splitMode(arg, mountModes...)
	d = &devContainer{mode: mode}
	abs, err := filepath.Abs(where)
	if err != nil {
		return nil, err
	}
	abs, d.name = devcontainer.Locate(abs)
	if d.dir, err = filepath.EvalSymlinks(abs); err != nil {
		return nil, fsutil.Reason(err)
	}
	if d.root, err = os.OpenRoot(d.dir); err != nil {
		return nil, fsutil.Reason(err)
	}
	if d.name == "" {
		if d.name, err = devcontainer.Find(d.root); err != nil {
			d.root.Close()
			return nil, err
		}
	}
	return d, nil
}

// read reads the file, and finds the directories that it mounts.
func (d *devContainer) read(o *Options) error {
	f, err := devcontainer.Read(d.root, d.name)
	if err != nil {
		return err
	}
	env, err := o.Environment(o.Env)
	if err != nil {
		return err
	}
	own, err := parseMounts(o.mounts)
	if err != nil {
		return err
	}
	place := devcontainer.Place{Dir: d.dir, File: d.name, Read: d.small, Env: func(name string) (string, bool) {
		for _, e := range slices.Backward(env) {
			if value, ok := strings.CutPrefix(e, name+"="); ok {
				return value, true
			}
		}
		return "", false
	}}
	for _, m := range own {
		place.Mounted = append(place.Mounted, m.Target)
	}
	if d.plan, err = f.Plan(place); err != nil {
		return err
	}
	if err := d.resolve(o); err != nil {
		return err
	}
	for _, m := range d.plan.Mounts {
		found, err := d.mount(m)
		if err != nil {
			return fmt.Errorf("mount %q: %w", m.Source, err)
		}
		d.mounts = append(d.mounts, found)
	}
	return nil
}

// mount finds a directory of the workspace. The runner follows no symbolic link in the path that it returns.
func (d *devContainer) mount(m devcontainer.Mount) (found Mount, err error) {
	real, err := filepath.EvalSymlinks(filepath.Join(d.dir, m.Source))
	if err != nil {
		return found, fsutil.Reason(err)
	}
	if !Contains(d.dir, real) {
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
func (d *devContainer) tell(o *Options) {
	lines := slices.Clone(d.plan.Notes)
	for _, port := range d.plan.Ports {
		n, err := strconv.ParseUint(port, 10, 16)
		switch {
		case err != nil:
			lines = append(lines, fmt.Sprintf("forwardPorts: %s is not forwarded", port))
		case !slices.ContainsFunc(o.Network.Publish, func(p runner.Port) bool { return p.To == uint16(n) }):
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
	d.say(o, lines)
}

func (d *devContainer) say(o *Options, lines []string) {
	for _, line := range lines {
		o.Say(fmt.Sprintf("%s: devcontainer.json: %s", o.Verb, text.SafeLine(line)))
	}
}

// setImage sets the image that the file names, or builds it. Only an image of a registry, of the store or of a recipe can
// be named: a directory or archive would be a file of this machine.
func (d *devContainer) setImage(o *Options) (err error) {
	base, name := d.plan.Name, d.imageName()
	if d.plan.Build != nil {
		if base = name; d.plan.HasFeatures() {
			base += "-base"
		}
		if err := d.build(o, base); err != nil {
			return err
		}
	} else if err := o.setImage(base); err != nil {
		return fmt.Errorf("image %q: %w", base, err)
	} else if k := o.Image.Kind; k != imageref.Registry && k != imageref.Bare && k != imageref.Recipe {
		return fmt.Errorf("image %q: a devcontainer.json can only name an image of a registry or of demesne images", base)
	}
	if d.plan.HasFeatures() {
		if err := d.install(o, base, name); err != nil {
			return fmt.Errorf("features: %w", err)
		}
	}
	if d.plan.Build == nil && !d.plan.HasFeatures() {
		return nil
	}
	o.Pull = images.PullNever
	return o.setImage(name)
}

// imageHas returns what an image says of itself.
func imageHas(c oci.Config) devcontainer.Has {
	return devcontainer.Has{Metadata: c.Labels[devcontainer.MetadataLabel], Env: c.Env, User: c.User}
}

// build builds the image of the file under a name.
// The build has the context and the directory of the Dockerfile as descriptors, which lie in the workspace whatever
// becomes of their paths.
func (d *devContainer) build(o *Options, name string) error {
	b := d.plan.Build
	if info, err := d.root.Lstat(b.File); err != nil || !info.Mode().IsRegular() {
		return fmt.Errorf("build: dockerfile %q: %w", b.File, errors.Join(fsutil.Reason(err), notRegular(err)))
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
	options := build.Options{File: "/proc/self/fd/5/" + filepath.Base(b.File), Target: b.Target, Args: b.Args, Pull: o.Pull == images.PullAlways}
	return d.run(o, name, options, build.Streams{Files: []*os.File{dir, beside}})
}

// run builds an image under a name. The first file of the streams is the context.
func (d *devContainer) run(o *Options, name string, b build.Options, s build.Streams) error {
	b.Context, b.Names, b.Platform, b.Quiet = "/proc/self/fd/4", []string{name}, o.platform, !stream.IsTerminal(o.Stderr)
	s.Log = o.Stderr
	if _, err := build.Run(context.Background(), b, s); err != nil {
		return fmt.Errorf("image %q: not built: %w", name, err)
	}
	return nil
}

func notRegular(err error) error {
	if err == nil {
		return errors.New("is not a regular file")
	}
	return nil
}

// imageName returns the name of the image that is built from the file: the directory's name, and a hash of the path.
func (d *devContainer) imageName() string {
	name := strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' || 'a' <= r && r <= 'z' {
			return r
		}
		return -1
	}, strings.ToLower(filepath.Base(d.dir)))
	return fmt.Sprintf("%s%.40s:%s", devcontainer.ImagePrefix, cmp.Or(name, "project"), devcontainer.ID(filepath.Join(d.dir, d.name))[:12])
}

// configured completes the sandbox with what the image says.
func (r *Root) configured(c *session.CreateOptions, image oci.Config) error {
	d, p := r.o.dev, r.o.dev.plan
	own := d.agent || r.o.User != nil || r.o.UserName != ""
	writable := slices.ContainsFunc(d.mounts, func(m Mount) bool { return !m.ReadOnly })
	if err := p.Image(imageHas(image), writable && !own); err != nil {
		return fmt.Errorf("%s: %w", d.name, err)
	}
	if d.agent && p.Hooks() {
		p.Notes = append(p.Notes, "its commands are not executed for an agent; RUN in the Dockerfile, or --branch --setup, prepares its sandbox")
	}
	d.say(r.o, p.Notes)
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

// Wrapped returns the command to run, after the hooks of a devcontainer.json.
func (r *Root) Wrapped(c *oci.Config, args []string) ([]string, error) {
	argv, err := r.Argv(c, args)
	if err == nil && r.o.dev != nil {
		argv = r.o.dev.plan.Wrap(argv, r.o.Key != "")
	}
	return argv, err
}

// Hooks executes the hooks of a devcontainer.json in a persistent sandbox. It removes a new sandbox if one fails.
func (r *Root) Hooks(ctx context.Context, s *session.Service, b *session.Sandbox) (code int, err error) {
	if r.o.dev == nil || !r.o.dev.plan.Hooks() {
		return 0, nil
	}
	argv := r.o.dev.plan.Wrap([]string{"/bin/sh", "-c", ":"}, true)
	done, err := s.Exec(ctx, b.ID, session.RunOptions{Command: runner.Command{Argv: argv}, Stdout: r.o.Stderr, Stderr: r.o.Stderr}, session.Callbacks{})
	if err == nil && done != nil {
		code = done.ExitCode
	}
	if (err != nil || code != 0) && !b.Existing {
		err = errors.Join(err, s.Discard(b.ID))
	}
	return code, err
}
