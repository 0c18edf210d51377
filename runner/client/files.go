package client

import (
	"context"
	"encoding/json"
	"os"

	"demesne/runner"
	"demesne/runner/files"
)

// Files performs one operation on the sandbox's files, as the sandbox's user. A relative path begins at /out. The
// answer comes from the sandbox and is untrusted.
func (s *Sandbox) Files(ctx context.Context, r files.Request) (*files.Answer, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	var a *files.Answer
	err := s.inside(ctx, "use files", runner.Command{Argv: []string{insideProgram, "files"}, Dir: "/out"}, func(in, out *os.File) error {
		err := json.NewEncoder(in).Encode(r)
		in.Close()
		if err != nil {
			return err
		}
		a, err = files.ReadAnswer(out)
		return err
	})
	if err == nil {
		err = ctx.Err()
	}
	return a, err
}
