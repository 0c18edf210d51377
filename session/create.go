package session

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"demesne/images"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/internal/fsutil"
	"demesne/runner"
	"demesne/runner/ipc"
)

// CreateOptions describes a sandbox. The zero value has the host's files, a directory of its own at /out, and no
// network.
type CreateOptions struct {
	// Spec holds the rest of the description. The Service sets Image, Rootfs, Out, Egress and Given. It sets Lifetime
	// too, unless that is Attached. A Workspace may be any path of the host.
	Spec runner.Spec

	Image imageref.Ref // zero: the host's files
	Pull  images.PullPolicy
	// Platform selects the image that Image names, such as "linux/arm64"; empty: this machine's, or what is here.
	Platform string
	User     string // a user or group of the image, by name or id
	Out      string // directory of the host, made if it is missing; empty: a new one below the output root
	Egress   Egress
	Aside    bool // see runner.Rootfs; for an image
	Docker   bool // the sandbox has a Docker socket, whose containers are sandboxes beside it

	// Configured is called with the image's configuration before the sandbox is made, and may change User and Spec.Defaults.
	// Its error ends Create. nil: nothing. It is not called for a root that is not an image.
	Configured func(c *CreateOptions, image oci.Config) error `json:"-"`

	// OutInside means that a sandbox can write to a directory above Out, which exists. Symbolic links in its path are
	// refused, because the sandbox may have made them.
	OutInside bool

	// Unasked names the arguments that the caller left out: "image", "egress", or a limit. With Spec.Key they may differ from
	// the arguments of the sandbox with that key.
	Unasked []string
}

// Create makes a persistent sandbox, or finds the one that has Spec.Key. If Spec.Lifetime is Attached, the sandbox ends
// with the Service at the latest. A persistent sandbox without name and key is removed 30 s
// after the Service is closed, unless Open or Exec was called with its id: its creator may have died before it could
// report the id.
func (s *Service) Create(ctx context.Context, c CreateOptions, cb Callbacks) (*Sandbox, error) {
	if c.Spec.Lifetime != runner.Attached {
		c.Spec.Lifetime = runner.Persistent
	}
	st, err := s.prepare(ctx, c, cb)
	if err != nil {
		return nil, err
	}
	return s.adopt(ctx, st, cb)
}

// adopt creates the persistent sandbox of st, or returns the one with its key.
func (s *Service) adopt(ctx context.Context, st *pending, cb Callbacks) (*Sandbox, error) {
	defer st.close()
	sb, err := st.create(ctx, &s.conn)
	if err != nil || sb.Existing {
		st.undo()
	}
	if err != nil {
		return nil, err
	}
	s.watch.hidden.add(sb.ID, secretsOf(&st.spec))
	cb.made(sb)
	return sb, nil
}

// pending holds the parts of a new sandbox: Spec, image and output directory.
type pending struct {
	root *rootImage
	spec runner.Spec
	out  *outDir

	unreserve func() // gives up the place that spec.Slot names, unless a sandbox holds it; nil: no place was reserved
}

// create makes the sandbox of st, or finds the one with its key.
func (st *pending) create(ctx context.Context, conn *connection) (sb *Sandbox, err error) {
	err = st.root.make(ctx, st.spec, conn, func(ctx context.Context, spec runner.Spec) error {
		sb, err = conn.create(ctx, spec)
		return err
	})
	return sb, err
}

// undo removes the directories of a sandbox that was not made, and gives up its place.
func (st *pending) undo() {
	if st.unreserve != nil {
		st.unreserve()
	}
	st.out.undo()
	if st.spec.Egress != nil {
		tidyLog(st.spec.Egress.Log)
	}
}

func (st *pending) close() {
	st.root.release()
	st.out.close()
}

// prepare finds the image, connects to the runner, reserves a place for a persistent sandbox, and makes the directories. With an image
// the place comes first, so that nothing is pulled for a call that is refused. Otherwise it is reserved while the directories are made.
func (s *Service) prepare(ctx context.Context, c CreateOptions, cb Callbacks) (_ *pending, err error) {
	if c.Docker {
		if err := s.addDocker(&c); err != nil {
			return nil, err
		}
	}
	rules := s.egress.resolve(ctx, c.Egress, cb.Note)
	st := &pending{spec: c.Spec}
	defer func() {
		if err != nil {
			st.root.release()
			st.undo()
		}
	}()
	placed := c.Spec.Lifetime == runner.Persistent && c.Image.Stored()
	if placed {
		if err = s.place(ctx, c, st, cb); err != nil {
			return nil, err
		}
	}
	began := time.Now()
	st.root, err = findRoot(ctx, s.opts.Images, c.Image, wanted{c.Pull, c.Platform}, cb.image(c.Image))
	if err != nil {
		return nil, err
	}
	if c.User != "" && st.root.ref.Kind != imageref.Directory && st.root.image == nil {
		err = ipc.Errorf(ipc.CodeInvalid, "user %q: not in numbers, and the host's files have no accounts", c.User)
		return nil, err
	}
	if c.Image.Stored() {
		cb.since("image", began)
	}
	if c.Configured != nil && st.root.image != nil {
		if err = c.Configured(&c, st.root.image.Config); err != nil {
			return nil, err
		}
		st.spec.Defaults = c.Spec.Defaults
	}
	connected := make(chan error, 1)
	if placed {
		connected <- nil
	} else {
		go func() { connected <- s.place(ctx, c, st, cb) }()
	}
	if cb.Ready != nil {
		cb.Ready()
	}
	err = st.makeDirs(s.outputs, c)
	if unconnected := <-connected; err == nil {
		err = unconnected
	}
	if err != nil {
		return nil, err
	}
	r := <-rules
	if err = r.err; err == nil && r.egress != nil {
		st.spec.Egress, st.spec.Defaults.Env = r.egress, slices.Concat(r.env, st.spec.Defaults.Env)
		r.egress.Log, err = s.outputs.logFile(st.out.name())
	}
	if err == nil && c.Spec.Key != "" {
		st.spec.Given, err = c.requested(st)
	}
	st.root.fill(&st.spec, c.User)
	if c.Aside && st.spec.Rootfs != nil {
		st.spec.Rootfs.Aside = true
	}
	return st, err
}

// place connects to the runner, and reserves a place for a persistent sandbox.
func (s *Service) place(ctx context.Context, c CreateOptions, st *pending, cb Callbacks) error {
	network := s.egress.likely(c.Egress)
	if c.Spec.Lifetime == runner.Persistent {
		return s.quota.reserve(ctx, &s.conn, network, st)
	}
	began := time.Now()
	_, _, err := s.conn.get(ctx, network)
	cb.since("connect", began)
	return err
}

// makeDirs checks the workspace, and makes /out.
func (st *pending) makeDirs(u outputs, c CreateOptions) (err error) {
	if st.spec.Workspace, err = workspaceDir(c.Spec.Workspace); err != nil {
		return err
	}
	if c.OutInside {
		st.out, err = openInside(c.Out)
	} else {
		st.out, err = u.open(c.Out)
	}
	if err == nil {
		st.spec.Out = st.out.path
	}
	return err
}

// Open opens a sandbox, and starts it again if it has lost its processes. The runner then knows that the caller has
// its id.
func (s *Service) Open(ctx context.Context, idOrName string, cb Callbacks) (sb *Sandbox, err error) {
	began := time.Now()
	err = s.With(ctx, func(e Engine) error {
		if sb, err = e.Open(ctx, idOrName); err == nil {
			s.conn.know(e, sb)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	cb.since("open", began)
	cb.made(sb)
	return sb, nil
}

// Inspect describes a sandbox.
func (s *Service) Inspect(ctx context.Context, idOrName string) (info *runner.Info, err error) {
	err = s.With(ctx, func(e Engine) error { info, err = e.Inspect(ctx, idOrName); return err })
	return info, err
}

// OfKey returns the id of the sandbox with that key.
func (s *Service) OfKey(ctx context.Context, key string) (id string, err error) {
	err = s.With(ctx, func(e Engine) error {
		infos, err := e.List(ctx)
		for _, i := range infos {
			if i.Spec.Key == key && i.Spec.Frontend == s.opts.Runner.Frontend && i.State != runner.Snapshot {
				id = i.ID
			}
		}
		return err
	})
	if err == nil && id == "" {
		err = ipc.Errorf(ipc.CodeNoSuchSandbox, "key %q: no sandbox has this key", key)
	}
	return id, err
}

// Remove ends a sandbox and removes its files. It removes an empty output directory that a Service made, and an empty
// log of connections.
func (s *Service) Remove(ctx context.Context, idOrName string) error {
	out, log := "", ""
	err := s.With(ctx, func(e Engine) error {
		if info, err := e.Inspect(ctx, idOrName); err == nil {
			out = info.Out
			if info.Spec.Egress != nil {
				log = info.Spec.Egress.Log
			}
		}
		return e.Remove(ctx, idOrName)
	})
	if err == nil {
		s.outputs.removeEmpty(out)
		tidyLog(log)
	}
	return err
}

// RemoveGroup removes the sandboxes of a group of this frontend, at the same time, and returns their ids.
func (s *Service) RemoveGroup(ctx context.Context, group string) (ids []string, err error) {
	var infos []runner.Info
	err = s.With(ctx, func(e Engine) error { infos, err = e.List(ctx); return err })
	if err != nil {
		return nil, err
	}
	infos = slices.DeleteFunc(infos, func(i runner.Info) bool {
		return i.Spec.Egress == nil || i.Spec.Egress.Group != group || i.Spec.Frontend != s.opts.Runner.Frontend || i.State == runner.Snapshot
	})
	ended := make(chan error)
	for _, i := range infos {
		ids = append(ids, i.ID)
		go func() { ended <- s.Remove(ctx, i.ID) }()
	}
	for range infos {
		if one := <-ended; one != nil && ipc.AsError(one).Code != ipc.CodeNoSuchSandbox { // others may have ended by themselves
			err = errors.Join(err, one)
		}
	}
	return ids, err
}

// Discard removes a sandbox that has no user any more, even if the request's context has ended.
func (s *Service) Discard(id string) error { return s.conn.remove(id) }

// Fork makes a sandbox with the files of another one, and with a new output directory or the one that out names.
func (s *Service) Fork(ctx context.Context, from, name, out string, publish []runner.Port) (f runner.Forked, err error) {
	o, err := s.outputs.open(out)
	if err != nil {
		return f, err
	}
	defer o.close()
	if _, err = s.quota.sandboxes(); err == nil {
		err = s.With(ctx, func(e Engine) error { f, err = e.Fork(ctx, from, name, o.path, publish...); return err })
	}
	if err != nil {
		o.undo()
	}
	return f, err
}

// ForkAttached makes a fork that is removed with its processes when the Service is closed, or when this process ends.
// mounts and routes are its own: see [client.Client.EphemeralFork].
func (s *Service) ForkAttached(ctx context.Context, from, out string, mounts []runner.Mount, routes []runner.Route) (id string, err error) {
	o, err := s.outputs.open(out)
	if err != nil {
		return "", err
	}
	defer o.close()
	err = s.With(ctx, func(e Engine) error {
		f, err := e.EphemeralFork(ctx, from, o.path, mounts, routes)
		id = f.ID
		return err
	})
	if err != nil {
		o.undo()
	}
	return id, err
}

// requested returns the properties that c requests for a keyed sandbox, and marks the defaults. Its egress rules are the
// caller's words, not the resulting rules, which include this machine's mirrors.
func (c CreateOptions) requested(st *pending) ([]runner.Argument, error) {
	mode := runner.NoEgress
	if e := st.spec.Egress; e != nil && e.Mode != "" {
		mode = e.Mode
	}
	spec := st.spec
	spec.Egress = nil
	all := spec.Arguments()
	add := func(name, value string) {
		if value != "" {
			all = append(all, runner.Argument{Name: name, Value: value})
		}
	}
	add("image", imageWord(c.Image))
	add("egress", mode)
	add("platform", c.Platform)
	add("user", c.User)
	if c.Out != "" {
		add("output directory", spec.Out)
	}
	e := c.Egress
	add("allowed domains", runner.SetWord(e.Allow))
	if !c.Docker || e.Group != e.Aliases[len(e.Aliases)-1] { // no group of its own
		add("group", e.Group)
	}
	add("denied domains", runner.SetWord(e.Deny))
	for _, flag := range []struct {
		name string
		on   bool
	}{{"learn", e.Learn}, {"ask", e.Ask > 0}, {"go proxy", e.GoProxy}, {"open with inputs", e.OpenWithInputs}} {
		if flag.on {
			add(flag.name, "yes")
		}
	}
	if e.PackageAge > 0 {
		add("package age", e.PackageAge.String())
	}
	add("routes", runner.RouteWords(e.Routes))
	if e.File != "" {
		word, err := fileWord(e.File)
		if err != nil {
			return nil, fmt.Errorf("egress-file %q: %w", e.File, fsutil.Reason(err))
		}
		add("egress file", word)
	}
	for i := range all {
		all[i].Default = slices.Contains(c.Unasked, all[i].Name)
	}
	return all, nil
}

// fileWord returns a file's absolute path with a hash of its content.
func fileWord(path string) (string, error) {
	abs, err := filepath.Abs(path)
	text, rerr := os.ReadFile(path)
	return fmt.Sprintf("%s (sha256 %.12x)", abs, sha256.Sum256(text)), errors.Join(err, rerr)
}
