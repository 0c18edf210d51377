package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/runner/tarball"
)

// insideProgram is the path of demesne-init in a sandbox, which also performs operations on its files.
const insideProgram = "/dev/.demesne-init"

// CopyIn copies src, a file or directory on the host but not a link, to dst in the sandbox, as the sandbox's user. A
// file goes into dst if that is a directory or ends in "/". A directory is merged into an existing dst. Links below
// src are copied as links. The report lists special files, which are skipped. Nothing appears at dst before all data
// has arrived.
func (s *Sandbox) CopyIn(ctx context.Context, src, dst string, l tarball.Limits) (tarball.Report, error) {
	root, err := os.OpenRoot(filepath.Dir(src))
	if err != nil {
		return tarball.Report{}, err
	}
	defer root.Close()
	name, verb := filepath.Base(src), tarball.Put
	info, err := root.Lstat(name)
	if err != nil {
		return tarball.Report{}, err
	}
	if info.IsDir() {
		verb = tarball.Merge
	}
	var did tarball.Report
	err = s.stream(ctx, verb, dst, func(in, _ *os.File) (err error) {
		defer in.Close()
		did, err = tarball.Pack(in, root, name, name, l)
		return err
	})
	return did, err
}

// CopyOut copies src in the sandbox, a file or a directory, into the directory to, under its last name. Links and
// special files are skipped and reported. It is an error if nothing else was found.
func (s *Sandbox) CopyOut(ctx context.Context, src string, to *os.Root, l tarball.Limits) (tarball.Report, error) {
	var did tarball.Report
	err := s.stream(ctx, tarball.Get, src, func(in, out *os.File) error {
		in.Close()
		var err error
		if did, err = tarball.Unpack(out, to, tarball.Options{Limits: l}); err != nil {
			return err
		}
		return drain(out)
	})
	if err != nil {
		return did, err
	}
	_, err = to.Lstat(path.Base(path.Clean(src)))
	if errors.Is(err, fs.ErrNotExist) || did.Files == 0 && did.LeftAll > 0 {
		return did, fmt.Errorf("copy %q: nothing to copy: missing, or only links and special files", src)
	}
	return did, nil
}

// Archive writes src in the sandbox, a file or a directory, to w as a tar in which src has its last name. As in CopyOut, links
// and special files are skipped, and it is an error if nothing else was found.
func (s *Sandbox) Archive(ctx context.Context, src string, w io.Writer, l tarball.Limits) (did tarball.Report, err error) {
	err = s.relayed(ctx, src, l, func(relay *tarball.Relay) (err error) {
		relay.NoLinks = true
		did, err = relay.Pass(w)
		return err
	})
	return did, err
}

// relayed passes a tar of src, which pass consumes.
func (s *Sandbox) relayed(ctx context.Context, src string, l tarball.Limits, pass func(*tarball.Relay) error) error {
	return s.stream(ctx, tarball.Get, src, func(in, out *os.File) error {
		in.Close()
		relay, err := tarball.NewRelay(out, l)
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("copy %q: nothing to copy", src)
		}
		if err == nil {
			err = pass(relay)
		}
		if err == nil {
			err = drain(out)
		}
		return err
	})
}

// drain reads what follows a tar's end. It is irrelevant, but its writer waits for a reader.
func drain(out io.Reader) error {
	_, err := io.Copy(io.Discard, io.LimitReader(out, 1<<20))
	return err
}

// CopyTo copies src in the sandbox, a file or a directory, to dst in another sandbox, as that sandbox's user. src and
// dst are as in CopyIn. The stream passes through the caller, which checks names, types and limits. Neither sandbox
// learns of the other.
func (s *Sandbox) CopyTo(ctx context.Context, src string, to *Sandbox, dst string, l tarball.Limits) (tarball.Report, error) {
	var did tarball.Report
	var there, passed error
	err := s.relayed(ctx, src, l, func(relay *tarball.Relay) error {
		verb := tarball.Put
		if relay.Dir {
			verb = tarball.Merge
		}
		there = to.stream(ctx, verb, dst, func(in, _ *os.File) error {
			defer in.Close()
			did, passed = relay.Pass(in)
			return passed
		})
		return cmp.Or(passed, there)
	})
	if there != nil && !errors.Is(passed, io.ErrUnexpectedEOF) { // src's side then only saw a broken pipe
		return did, there
	}
	return did, err
}

// stream copies a path inside the sandbox. It passes the host's ends of the copier's stdin and stdout to host.
func (s *Sandbox) stream(ctx context.Context, verb, what string, host func(in, out *os.File) error) error {
	if !strings.HasPrefix(what, "/") {
		return ipc.Errorf(ipc.CodeInvalid, "copy %q: not an absolute path in the sandbox", what)
	}
	return s.inside(ctx, fmt.Sprintf("copy %q", what), runner.Command{Argv: []string{insideProgram, verb, what}, Dir: "/"}, host)
}

// inside executes cmd, which runs insideProgram, and passes the host's ends of its stdin and stdout to host. The end
// of ctx also ends the operation. An error from inside the sandbox is prefixed with what.
func (s *Sandbox) inside(ctx context.Context, what string, cmd runner.Command, host func(in, out *os.File) error) error {
	var pipes pipes
	defer pipes.close()
	in, err1 := pipes.to(&cmd.Stdin)
	out, err2 := pipes.from(&cmd.Stdout)
	errs, err3 := pipes.from(&cmd.Stderr)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	p, err := s.exec(ctx, cmd, how{silent: true})
	pipes.handOver()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		pipes.close()
		p.Signal(syscall.SIGKILL)
	})
	defer stop()
	said := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(io.LimitReader(errs, 4096))
		said <- firstLine(string(b))
	}()
	err = host(in, out)
	in.Close()
	out.Close()
	r, werr := p.Wait(ctx)
	switch {
	case werr != nil:
		return werr
	case r.ExitCode == 0:
		return err
	case err != nil && !cut(err): // the command inside only saw a broken pipe
		return fmt.Errorf("%s: %w", what, err)
	}
	if text := <-said; text != "" { // the command's own message is the most precise
		err = errors.New(text)
	} else if err == nil || r.Reason == runner.Lost { // the host only saw a broken pipe
		err = errors.New(r.Detail)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// cut reports whether a host-side error is about a broken pipe, so that the other end knows the cause.
func cut(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// pipes holds the pipes of one command: the ends for the command, and the host's ends.
type pipes struct{ theirs, ours []*os.File }

// to makes a pipe for the host to write to. *end becomes the command's end.
func (p *pipes) to(end **os.File) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	resize(w, widePipe)
	*end, p.theirs, p.ours = r, append(p.theirs, r), append(p.ours, w)
	return w, nil
}

// from makes a pipe for the host to read from. *end becomes the command's end.
func (p *pipes) from(end **os.File) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	resize(w, widePipe)
	*end, p.theirs, p.ours = w, append(p.theirs, w), append(p.ours, r)
	return r, nil
}

// widePipe is the size of a pipe between the two ends of a copy. Both ends then work at the same time on small files.
const widePipe = 256 << 10

// resize changes the size of a pipe if its content and the user's limit permit it.
func resize(f *os.File, size int) {
	if c, err := f.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, size) })
	}
}

// handOver closes the command's ends, of which the command has copies now.
func (p *pipes) handOver() {
	for _, f := range p.theirs {
		f.Close()
	}
}

// close may be called repeatedly, and while the host's ends are in use: pending operations then end.
func (p *pipes) close() {
	p.handOver()
	for _, f := range p.ours {
		f.Close()
	}
}

// Lay creates the entries of a tar, which from writes, in the sandbox's files: see [tarball.Layout]. It runs as the
// sandbox's uid 0.
func (s *Sandbox) Lay(ctx context.Context, l tarball.Layout, from func(io.Writer) error) error {
	cmd, err := asRoot(tarball.Lay, l)
	if err != nil {
		return err
	}
	return s.inside(ctx, fmt.Sprintf("copy to %q", l.Dest), cmd, func(in, _ *os.File) error {
		defer in.Close()
		return from(in)
	})
}

// Gather reads files of the sandbox as a tar, which to reads: see [tarball.Gathering]. The stream comes from the sandbox,
// and is as untrusted. It runs as the sandbox's uid 0.
func (s *Sandbox) Gather(ctx context.Context, g tarball.Gathering, to func(io.Reader) error) error {
	cmd, err := asRoot(tarball.Gather, g)
	if err != nil {
		return err
	}
	return s.inside(ctx, "copy", cmd, func(in, out *os.File) error {
		in.Close()
		return to(out)
	})
}

// Own gives a directory of the sandbox to a user: see [tarball.Owning].
func (s *Sandbox) Own(ctx context.Context, o tarball.Owning) error {
	cmd, err := asRoot(tarball.Own, o)
	if err != nil {
		return err
	}
	return s.inside(ctx, fmt.Sprintf("change owner of %q", o.Path), cmd, func(in, _ *os.File) error { in.Close(); return nil })
}

func asRoot(verb string, arg any) (runner.Command, error) {
	text, err := json.Marshal(arg)
	return runner.Command{Argv: []string{insideProgram, verb, string(text)}, Dir: "/", User: &runner.User{}}, err
}
