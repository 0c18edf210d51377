package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"

	"demesne/cmd/internal/outputs"
	"demesne/cmd/internal/session/base"
	"demesne/cmd/internal/session/egress"
	"demesne/cmd/internal/session/quota"
	"demesne/images/imageref"
	"demesne/internal/ticketlock"
	"demesne/mcp/backend"
	"demesne/runner"
	"demesne/runner/client"
	"demesne/runner/files"
	"demesne/runner/ipc"
	"demesne/runner/tarball"
)

// Create makes a sandbox that stays, or with a key finds it.
func (d *Service) Create(ctx context.Context, r backend.Request, w backend.Watch) (*backend.Created, error) {
	c, err := d.create(ctx, r, w)
	return c, explained(err)
}

func (d *Service) create(ctx context.Context, r backend.Request, w backend.Watch) (*backend.Created, error) {
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
			stop(box) // its caller will never know of it
		}
		return nil, err
	}
	c.Receipt, c.Expires = info.Receipt, info.Expires
	c.Told = func() { d.known(box.ID) }
	return c, nil
}

// known has the runner know that we are not the only one who knows of a sandbox. If that cannot be,
// its next command does it.
func (d *Service) known(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	d.attach(ctx, id)
}

// roomFor stops box if there are more of those that stay than are allowed. It looks afterwards, so that two
// that come at once cannot both be the last one.
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

// attach finds a sandbox that stays.
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

// Exec runs a command in a sandbox that stays. Its output is nowhere but in the outcome.
func (d *Service) Exec(ctx context.Context, id string, r backend.Request, w backend.Watch) (*backend.Outcome, error) {
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

// lookAgain says of an error that the runner does not know the sandbox, and so has done nothing
// with it.
func lookAgain(err error) bool {
	var e *ipc.Error
	return errors.As(err, &e) && e.Code == ipc.NoSuchSandbox
}

// within runs a command in a sandbox that stays, when its turn has come.
func (d *Service) within(ctx context.Context, box *client.Sandbox, r backend.Request, w backend.Watch, s streams) (*backend.Outcome, error) {
	if r.InTurn {
		turn, err := ticketlock.Join(d.opts.Turns, box.ID, newUUID())
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
	return &backend.Outcome{Job: filepath.Base(box.Out), OutputDir: box.Out, Result: res, Stdout: s.out.last(), Stderr: s.errs.last()}, nil
}

// keyed runs a command in the sandbox of r's key. Others may be using its output directory, so
// what the command wrote to its streams is not put there.
func (d *Service) keyed(ctx context.Context, r backend.Request, w backend.Watch, s streams) (*backend.Outcome, error) {
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

// given is what r asks the sandbox of a key to be, and what its defaults stand for.
func given(r backend.Request, ref imageref.Ref) []runner.Argument {
	mode := r.Egress
	if mode == "" {
		mode = egress.None
	}
	all := append(runner.Arguments(r.Spec),
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

// Destroy ends a sandbox, and removes its output directory if that is empty. A sandbox that is not there is an error, the second time too.
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

// PruneOutputs removes output directories that are not in use: those that are empty, and all but the newest.
func (d *Service) PruneOutputs(ctx context.Context, most int) error {
	_, err := outputs.Prune(outputs.Options{Root: d.root, Most: most, InUse: func() (list []runner.Info, err error) {
		err = d.conn.with(ctx, func(live *client.Client) error {
			list, err = live.List(ctx)
			return err
		})
		return list, err
	}})
	return err
}

// Files does one thing with the files of a sandbox, and renews its time as any command does.
func (d *Service) Files(ctx context.Context, id string, r files.Request) (*files.Answer, error) {
	box, err := d.attach(ctx, id)
	if err != nil {
		return nil, err
	}
	a, err := box.Files(ctx, r)
	return a, explained(err)
}

// Upload copies a file or directory of the host into a sandbox. There is no link in src:
// whoever checked it has resolved it. Since then some sandbox may have put one there, for
// output directories are among what may be uploaded; it is not followed.
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
	src = fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(src))
	did, err := box.CopyIn(ctx, src, dst, d.opts.Copy)
	return backend.Copied{Report: did, Path: dst}, explainedCopy(err)
}

// explainedCopy adds to an error of a copy which variable lifts the limit, if it is about one.
func explainedCopy(err error) error {
	if h := quota.CopyHint(err); h != "" {
		return &hinted{err, h}
	}
	return explained(err)
}

// openResolved opens a directory that has no link in its path (openat2(2)).
func openResolved(path string) (*os.File, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// downloads is where downloads of a sandbox go, below the output root and its id.
const downloads = "downloads"

// Download copies src out of a sandbox, in place of what it copied there from a path with
// the same last name.
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
		root.Remove(to) // unless something is in it
		root.Remove(box.ID)
		return c, explainedCopy(err)
	}
	c.Path = filepath.Join(d.root, to, name)
	return c, nil
}

// fetch copies src to a place of its own first, so that two downloads do not meet.
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
	d.swap.Lock() // what others of our calls put there is replaced, not added to
	defer d.swap.Unlock()
	whole := path.Join(to, name)
	if root.Rename(path.Join(part, name), whole) == nil {
		return did, nil
	}
	// What is there is of another kind, or a directory with something in it.
	if err := root.RemoveAll(whole); err != nil {
		return did, fmt.Errorf("download: %w", err)
	}
	return did, root.Rename(path.Join(part, name), whole)
}
