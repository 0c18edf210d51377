package executor

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"demesne/build/containerfile"
	"demesne/runner"
)

// ExitError is the failure of a RUN.
type ExitError struct {
	Text   string
	Result *runner.Result
}

func (e *ExitError) Error() string {
	if e.Result.Detail != "" {
		return fmt.Sprintf("%s: %s", e.Text, e.Result.Detail)
	}
	return fmt.Sprintf("%s: exit code %d", e.Text, e.Result.ExitCode)
}

// run executes a RUN in the stage's sandbox.
func (s *stage) run(ctx context.Context, r *containerfile.Run, text string) error {
	out, theirs, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make pipe: %w", err)
	}
	defer out.Close()
	if m := s.sandbox.mounts; m != nil {
		r.Env = append(r.Env, m.env...)
	}
	cmd := runner.Command{Argv: r.Argv, Env: r.Env, Dir: r.Dir, Stdout: theirs, Stderr: theirs, Alone: true, Account: true}
	p, err := s.sandbox.Exec(ctx, cmd)
	theirs.Close()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { p.Signal(syscall.SIGKILL) })()
	var wg sync.WaitGroup
	shown := s.task.output
	wg.Go(func() { io.Copy(shown, out) })
	res, err := p.Wait(context.WithoutCancel(ctx))
	wg.Wait()
	shown.Close()
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	s.sayOwners(res.Receipt)
	if res.ExitCode != 0 || res.Reason != runner.Exited {
		return &ExitError{text, res}
	}
	return nil
}

// sayOwners says once that a RUN cannot give files to other users. COPY and ADD can: see package tarball.
func (s *stage) sayOwners(r *runner.Receipt) {
	if r == nil || len(r.UIDMap) != 1 || r.UIDMap[0].Size != 1 {
		return
	}
	s.owners.Do(func() {
		s.show.note("this machine gives one user id: files that a RUN gives to other users stay root's; demesne check says how to get more ids")
	})
}
