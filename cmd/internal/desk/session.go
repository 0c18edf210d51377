package desk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"

	"demesne/cmd/internal/room"
	"demesne/mcp/work"
	"demesne/runner"
	"demesne/runner/client"
	"demesne/runner/files"
	"demesne/runner/tarball"
	"demesne/runner/turns"
	"demesne/runner/wire"
)

// Create makes a sandbox that stays, or with a key finds it.
func (d *Desk) Create(ctx context.Context, r work.Request, w work.Watch) (*work.Created, error) {
	c, err := d.create(ctx, r, w)
	return c, explained(err)
}

func (d *Desk) create(ctx context.Context, r work.Request, w work.Watch) (*work.Created, error) {
	box, out, err := d.make(ctx, r, w, runner.Persistent, d.conn.create)
	if err != nil {
		return nil, err
	}
	defer out.close()
	c := &work.Created{ID: box.ID, OutputDir: box.Out}
	found := box.Out != out.path
	if found { // one of that key was there
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
func (d *Desk) known(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	d.attach(ctx, id)
}

// roomFor stops box if there are more of those that stay than are allowed. It looks afterwards, so that two
// that come at once cannot both be the last one.
func (d *Desk) roomFor(ctx context.Context, box *client.Sandbox) error {
	if d.opts.Most == 0 {
		return nil
	}
	var n int
	err := d.conn.with(ctx, func(live *client.Client) (err error) {
		n, err = live.Count(ctx)
		return err
	})
	if err == nil {
		err = room.Full(n, d.opts.Most)
	}
	if errors.Is(err, room.ErrFull) {
		err = &hinted{err, "sandbox_destroy ends one; demesne ls lists them"}
	}
	if err != nil {
		stop(box)
	}
	return err
}

// attach finds a sandbox that stays.
func (d *Desk) attach(ctx context.Context, id string) (box *client.Sandbox, err error) {
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
func (d *Desk) Exec(ctx context.Context, id string, r work.Request, w work.Watch) (*work.Outcome, error) {
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
	var e *wire.Error
	return errors.As(err, &e) && e.Code == wire.CodeUnknown
}

// within runs a command in a sandbox that stays, when its turn has come.
func (d *Desk) within(ctx context.Context, box *client.Sandbox, r work.Request, w work.Watch, s streams) (*work.Outcome, error) {
	if r.InTurn {
		turn, err := turns.Join(d.opts.Turns, box.ID, newUUID())
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
	return &work.Outcome{Job: filepath.Base(box.Out), OutputDir: box.Out, Result: res, Stdout: s.out.last(), Stderr: s.errs.last()}, nil
}

// keyed runs a command in the sandbox of r's key. Others may be using its output directory, so
// what the command wrote to its streams is not put there.
func (d *Desk) keyed(ctx context.Context, r work.Request, w work.Watch, s streams) (*work.Outcome, error) {
	c, err := d.create(ctx, r, w)
	if err != nil {
		return nil, err
	}
	box, err := d.attach(ctx, c.ID)
	if err != nil {
		return nil, err
	}
	return d.within(ctx, box, r, w, s)
}

// Destroy ends a sandbox. One that is not there is an error, the second time too.
func (d *Desk) Destroy(ctx context.Context, id string) error {
	err := d.conn.with(ctx, func(live *client.Client) error { return live.Stop(ctx, id) })
	if err != nil {
		return attached(id, err)
	}
	return nil
}

// Files does one thing with the files of a sandbox, and renews its time as any command does.
func (d *Desk) Files(ctx context.Context, id string, r files.Request) (*files.Answer, error) {
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
func (d *Desk) Upload(ctx context.Context, id, src, dst string) error {
	box, err := d.attach(ctx, id)
	if err != nil {
		return err
	}
	dir, err := openResolved(filepath.Dir(src))
	if err != nil {
		return fmt.Errorf("upload %q: %w", src, err)
	}
	defer dir.Close()
	src = fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(src))
	return explained(box.CopyIn(ctx, src, dst))
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
func (d *Desk) Download(ctx context.Context, id, src string) (string, error) {
	name := path.Base(path.Clean(src))
	if name == "/" {
		return "", errors.New("will not copy / out")
	}
	box, err := d.attach(ctx, id)
	if err != nil {
		return "", err
	}
	root, err := os.OpenRoot(d.root)
	if err != nil {
		return "", fmt.Errorf("download: %w", err)
	}
	defer root.Close()
	to := path.Join(box.ID, downloads)
	if err := d.fetch(ctx, box, src, root, to, name); err != nil {
		return "", explained(err)
	}
	return filepath.Join(d.root, to, name), nil
}

// fetch copies src to a place of its own first, so that two downloads do not meet.
func (d *Desk) fetch(ctx context.Context, box *client.Sandbox, src string, root *os.Root, to, name string) error {
	part := path.Join(to, ".part-"+newUUID())
	if err := root.MkdirAll(part, ownerOnly); err != nil {
		return fmt.Errorf("download: %w", err)
	}
	defer root.RemoveAll(part)
	if err := mark(d.root, box.ID); err != nil {
		return err
	}
	dir, err := root.OpenRoot(part)
	if err != nil {
		return fmt.Errorf("download: %w", err)
	}
	defer dir.Close()
	if _, err := box.CopyOut(ctx, src, dir, tarball.Limits{}); err != nil {
		return err
	}
	if info, err := dir.Lstat(name); err == nil && info.Mode().IsRegular() {
		dir.Chmod(name, 0o600)
	}
	d.swap.Lock() // what others of our calls put there is replaced, not added to
	defer d.swap.Unlock()
	whole := path.Join(to, name)
	if root.Rename(path.Join(part, name), whole) == nil {
		return nil
	}
	// What is there is of another kind, or a directory with something in it.
	if err := root.RemoveAll(whole); err != nil {
		return fmt.Errorf("download: %w", err)
	}
	return root.Rename(path.Join(part, name), whole)
}
