package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"demesne/cmd/internal/outputs"
	"demesne/cmd/internal/session/base"
	"demesne/cmd/internal/session/egress"
	"demesne/cmd/internal/session/quota"
	"demesne/images/imageref"
	"demesne/internal/flock"
	"demesne/internal/fsutil"
	"demesne/mcp/backend"
	"demesne/runner"
	"demesne/runner/client"
	"demesne/runner/files"
	"demesne/runner/ipc"
	"demesne/runner/tarball"
)

// Create makes a persistent sandbox, or finds the one with the request's key.
func (d *Service) Create(ctx context.Context, r backend.Request, w backend.Callbacks) (*backend.Created, error) {
	c, err := d.create(ctx, r, w)
	return c, explained(err)
}

func (d *Service) create(ctx context.Context, r backend.Request, w backend.Callbacks) (*backend.Created, error) {
	box, out, err := d.make(ctx, r, w, runner.Persistent, d.conn.create)
	if err != nil {
		return nil, err
	}
	defer out.close()
	c := &backend.Created{ID: box.ID, OutputDir: box.Out, Replaced: box.Replaced}
	found := box.Existing
	if found {
		out.undo()
	} else if err := d.roomFor(ctx, box); err != nil {
		out.undo()
		return nil, err
	}
	var info *runner.Info
	err = d.conn.with(ctx, func(live *client.Client) error {
		info, err = live.Inspect(ctx, box.ID)
		return err
	})
	if err != nil {
		if !found {
			stop(box) // the caller will never learn its id
		}
		return nil, err
	}
	c.Receipt, c.Expires = info.Receipt, info.Expires
	c.Told = func() { d.known(box.ID) }
	return c, nil
}

// known tells the runner, by attaching, that the id has reached the caller. If that fails, the caller's next
// command does it.
func (d *Service) known(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	d.attach(ctx, id)
}

// roomFor removes box if the user now has more persistent sandboxes than allowed. It counts after creation, so
// that two concurrent calls cannot both take the last slot.
func (d *Service) roomFor(ctx context.Context, box *client.Sandbox) error {
	if d.opts.Most == 0 {
		return nil
	}
	var n int
	err := d.conn.with(ctx, func(live *client.Client) (err error) {
		n, err = live.Count(ctx)
		return err
	})
	if err == nil {
		err = quota.Full(n, d.opts.Most)
	}
	if errors.Is(err, quota.ErrFull) {
		err = &hinted{err, "sandbox_destroy ends one; demesne ls lists them"}
	}
	if err != nil {
		stop(box)
	}
	return err
}

// attach opens a persistent sandbox.
func (d *Service) attach(ctx context.Context, id string) (box *client.Sandbox, err error) {
	err = d.conn.with(ctx, func(live *client.Client) error {
		if box, err = live.Open(ctx, id); err == nil {
			d.conn.know(live, box)
		}
		return err
	})
	if err != nil {
		return nil, attached(id, err)
	}
	return box, nil
}

func attached(id string, err error) error {
	return explained(fmt.Errorf("attach to sandbox %s: %w", id, err))
}

// Exec runs a command in a persistent sandbox. Its output is only in the returned Outcome.
func (d *Service) Exec(ctx context.Context, id string, r backend.Request, w backend.Callbacks) (*backend.RunResult, error) {
	if box := d.conn.known(id); box != nil {
		o, err := d.within(ctx, box, r, w, newStreams())
		if !lookAgain(err) {
			return o, explained(err)
		}
		d.conn.unknow(id)
	}
	box, err := d.attach(ctx, id)
	if err != nil {
		return nil, err
	}
	o, err := d.within(ctx, box, r, w, newStreams())
	return o, explained(err)
}

// lookAgain reports whether err says that the runner does not know the sandbox, and so has done nothing with
// it.
func lookAgain(err error) bool {
	var e *ipc.Error
	return errors.As(err, &e) && e.Code == ipc.CodeNoSuchSandbox
}

// within runs a command in a persistent sandbox. With r.Queue it first waits for its turn.
func (d *Service) within(ctx context.Context, box *client.Sandbox, r backend.Request, w backend.Callbacks, s streams) (*backend.RunResult, error) {
	if r.Queue {
		turn, err := flock.JoinQueue(d.opts.Turns, box.ID, newUUID())
		if err != nil {
			return nil, err
		}
		defer turn.Leave()
		if err := turn.Wait(ctx); err != nil {
			return nil, err
		}
	}
	r.Spec.Lifetime = runner.Persistent
	res, err := d.execute(ctx, in(ctx, box), r, w, s)
	if err != nil {
		return nil, err
	}
	return &backend.RunResult{Job: filepath.Base(box.Out), OutputDir: box.Out, Result: res, Stdout: s.out.last(), Stderr: s.errs.last()}, nil
}

// keyed runs a command in the sandbox of r's key. The command's output is not placed in the output directory,
// because other calls may be using that directory.
func (d *Service) keyed(ctx context.Context, r backend.Request, w backend.Callbacks, s streams) (*backend.RunResult, error) {
	c, err := d.create(ctx, r, w)
	if err != nil {
		return nil, err
	}
	box, err := d.attach(ctx, c.ID)
	if err != nil {
		return nil, err
	}
	o, err := d.within(ctx, box, r, w, s)
	if err == nil {
		o.Result.Replaced = c.Replaced
	}
	return o, err
}

// given returns the properties that r asks of a keyed sandbox, and marks those that are defaults.
func given(r backend.Request, ref imageref.Ref) []runner.Argument {
	mode := r.Egress
	if mode == "" {
		mode = egress.None
	}
	all := runner.Arguments(r.Spec)
	for i := range all {
		all[i].Default = slices.Contains(r.UnaskedLimits, all[i].Name)
	}
	all = append(all,
		runner.Argument{Name: "image", Value: base.Word(ref), Default: !r.OwnImage},
		runner.Argument{Name: "egress", Value: mode, Default: !r.OwnEgress})
	if len(r.Domains) > 0 {
		all = append(all, runner.Argument{Name: "allowed domains", Value: runner.SetWord(r.Domains)})
	}
	if r.Ask {
		all = append(all, runner.Argument{Name: "ask", Value: "yes"})
	}
	return all
}

// Destroy removes a sandbox, and its output directory if that is empty. It fails if the sandbox does not exist,
// and so fails when it is repeated.
func (d *Service) Destroy(ctx context.Context, id string) error {
	var out string
	err := d.conn.with(ctx, func(live *client.Client) error {
		if info, err := live.Inspect(ctx, id); err == nil {
			out = info.Out
		}
		return live.Remove(ctx, id)
	})
	if err != nil {
		return attached(id, err)
	}
	outputs.RemoveEmpty(d.root, out)
	return nil
}

// PruneOutputs removes unused output directories: the empty ones, and all but the newest most. The directories of
// all doors lie in one root, so it asks the runner as the command line, which sees every sandbox.
func (d *Service) PruneOutputs(ctx context.Context, most int) error {
	all := connection{opts: d.opts.Runner}
	all.opts.Door = runner.DoorCLI
	defer all.close()
	_, err := outputs.Prune(outputs.Options{Root: d.root, Most: most, InUse: func() (list []runner.Info, err error) {
		err = all.with(ctx, func(live *client.Client) error {
			list, err = live.List(ctx)
			return err
		})
		return list, err
	}})
	return err
}

// Files performs one file operation in a sandbox, and renews its TTL as a command does.
func (d *Service) Files(ctx context.Context, id string, r files.Request) (*files.Answer, error) {
	box, err := d.attach(ctx, id)
	if err != nil {
		return nil, err
	}
	a, err := box.Files(ctx, r)
	return a, explained(err)
}

// Upload copies a file or directory of the host into a sandbox. src must be free of symbolic links; the caller
// has resolved them. A sandbox may have put one there since, because output directories may be uploaded. Upload
// does not follow it.
func (d *Service) Upload(ctx context.Context, id, src, dst string) (backend.Copied, error) {
	box, err := d.attach(ctx, id)
	if err != nil {
		return backend.Copied{}, err
	}
	dir, err := openResolved(filepath.Dir(src))
	if err != nil {
		return backend.Copied{}, fmt.Errorf("upload %q: %w", src, err)
	}
	defer dir.Close()
	src = fsutil.FDPath(int(dir.Fd())) + "/" + filepath.Base(src)
	did, err := box.CopyIn(ctx, src, dst, d.opts.Copy)
	return backend.Copied{Report: did, Path: dst}, explainedCopy(err)
}

// explainedCopy adds a hint to a copy's error: if the copy hit a limit, it names the variable that raises the
// limit.
func explainedCopy(err error) error {
	if h := quota.CopyHint(err); h != "" {
		return &hinted{err, h}
	}
	return explained(err)
}

// openResolved opens a directory, and fails if its path has a symbolic link (openat2(2)).
func openResolved(path string) (*os.File, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// downloads is the directory, below the output root and the sandbox's id, that receives downloads.
const downloads = "downloads"

// Download copies src out of a sandbox. It replaces an earlier download with the same base name.
func (d *Service) Download(ctx context.Context, id, src string) (c backend.Copied, err error) {
	name := path.Base(path.Clean(src))
	if name == "/" {
		return c, errors.New("will not copy / out")
	}
	box, err := d.attach(ctx, id)
	if err != nil {
		return c, err
	}
	root, err := os.OpenRoot(d.root)
	if err != nil {
		return c, fmt.Errorf("download: %w", err)
	}
	defer root.Close()
	to := path.Join(box.ID, downloads)
	if c.Report, err = d.fetch(ctx, box, src, root, to, name); err != nil {
		root.Remove(to) // fails if it is not empty
		root.Remove(box.ID)
		return c, explainedCopy(err)
	}
	c.Path = filepath.Join(d.root, to, name)
	return c, nil
}

// fetch first copies src to a directory of its own, so that concurrent downloads do not collide.
func (d *Service) fetch(ctx context.Context, box *client.Sandbox, src string, root *os.Root, to, name string) (did tarball.Report, err error) {
	part := path.Join(to, ".part-"+newUUID())
	if err := root.MkdirAll(part, ownerOnly); err != nil {
		return did, fmt.Errorf("download: %w", err)
	}
	defer root.RemoveAll(part)
	if err := mark(d.root, box.ID); err != nil {
		return did, err
	}
	dir, err := root.OpenRoot(part)
	if err != nil {
		return did, fmt.Errorf("download: %w", err)
	}
	defer dir.Close()
	if did, err = box.CopyOut(ctx, src, dir, d.opts.Copy); err != nil {
		return did, err
	}
	if info, err := dir.Lstat(name); err == nil && info.Mode().IsRegular() {
		dir.Chmod(name, 0o600)
	}
	d.swap.Lock() // an earlier download is replaced, not merged
	defer d.swap.Unlock()
	whole := path.Join(to, name)
	if root.Rename(path.Join(part, name), whole) == nil {
		return did, nil
	}
	// The existing entry is of another kind, or is a directory that is not empty.
	if err := root.RemoveAll(whole); err != nil {
		return did, fmt.Errorf("download: %w", err)
	}
	return did, root.Rename(path.Join(part, name), whole)
}
