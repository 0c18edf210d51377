package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/runner/tarball"
)

// insideProgram is demesne-init in a sandbox, which does there what it is told to.
const insideProgram = "/dev/.demesne-init"

// CopyIn copies src, a file or a directory of ours that is no link, to dst in the sandbox,
// as the sandbox's user. A file goes into dst if that is a directory there or ends in "/";
// a directory is added to what is at dst. Links below src are copied as links; what else is no file or directory is in
// the report. Nothing is at dst before all of it has arrived.
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

// CopyOut copies src in the sandbox, a file or a directory, into the directory to, under
// its last name. Links and special files stay behind and are named in the report; that there was nothing else is an error.
func (s *Sandbox) CopyOut(ctx context.Context, src string, to *os.Root, l tarball.Limits) (tarball.Report, error) {
	var did tarball.Report
	err := s.stream(ctx, tarball.Get, src, func(in, out *os.File) error {
		in.Close()
		var err error
		if did, err = tarball.Unpack(out, to, tarball.Options{Limits: l}); err != nil {
			return err
		}
		// What follows a tar's end is of no interest, but its writer waits for a reader.
		_, err = io.Copy(io.Discard, io.LimitReader(out, 1<<20))
		return err
	})
	if err != nil {
		return did, err
	}
	_, err = to.Lstat(path.Base(path.Clean(src)))
	if errors.Is(err, fs.ErrNotExist) || did.Files == 0 && did.LeftAll > 0 {
		return did, fmt.Errorf("copy %q: nothing there can be copied out", src)
	}
	return did, nil
}

// CopyTo copies src in the sandbox, a file or a directory, to dst in another one, as that one's user. Both are as in
// CopyIn. The stream passes through here, where names, kinds and amount are checked; neither
// sandbox learns of the other.
func (s *Sandbox) CopyTo(ctx context.Context, src string, to *Sandbox, dst string, l tarball.Limits) (tarball.Report, error) {
	var did tarball.Report
	var there, passed error
	err := s.stream(ctx, tarball.Get, src, func(in, out *os.File) error {
		in.Close()
		relay, err := tarball.NewRelay(out, l)
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("copy %q: nothing there can be copied", src)
		}
		if err != nil {
			return err
		}
		verb := tarball.Put
		if relay.Dir {
			verb = tarball.Merge
		}
		there = to.stream(ctx, verb, dst, func(in, _ *os.File) error {
			defer in.Close()
			did, passed = relay.Pass(in)
			return passed
		})
		if there != nil {
			return cmp.Or(passed, there)
		}
		_, err = io.Copy(io.Discard, io.LimitReader(out, 1<<20))
		return err
	})
	if there != nil && !errors.Is(passed, io.ErrUnexpectedEOF) { // then src's end only saw a pipe break
		return did, there
	}
	return did, err
}

// stream has a path copied inside, and host take the other ends of the copier's stdin and stdout.
func (s *Sandbox) stream(ctx context.Context, verb, what string, host func(in, out *os.File) error) error {
	if !strings.HasPrefix(what, "/") {
		return ipc.Errorf(ipc.CodeInvalid, "copy %q: not an absolute path in the sandbox", what)
	}
	return s.inside(ctx, fmt.Sprintf("copy %q", what), runner.Command{Argv: []string{insideProgram, verb, what}, Dir: "/"}, host)
}

// inside executes cmd, which is insideProgram, and has host take the other ends of its stdin and
// stdout. When ctx ends, so does what is done inside. An error that was inside begins with what.
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
	case err != nil && !cut(err): // the one inside only saw a pipe break
		return fmt.Errorf("%s: %w", what, err)
	}
	if text := <-said; text != "" { // it knows best
		err = errors.New(text)
	} else if err == nil || r.Reason == runner.Lost { // we only saw a pipe break
		err = errors.New(r.Detail)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// cut says that an error of ours is about a pipe, whose other end knows why.
func cut(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// pipes are those of one command: the ends it gets, and ours.
type pipes struct{ theirs, ours []*os.File }

// to makes a pipe that we write to; end becomes the command's end of it.
func (p *pipes) to(end **os.File) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	*end, p.theirs, p.ours = r, append(p.theirs, r), append(p.ours, w)
	return w, nil
}

// from makes a pipe that we read from.
func (p *pipes) from(end **os.File) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	*end, p.theirs, p.ours = w, append(p.theirs, w), append(p.ours, r)
	return r, nil
}

// handOver closes the command's ends: it has its own by now.
func (p *pipes) handOver() {
	for _, f := range p.theirs {
		f.Close()
	}
}

// close may be called again, and while ours are in use: that ends the use.
func (p *pipes) close() {
	p.handOver()
	for _, f := range p.ours {
		f.Close()
	}
}
