package client

import (
	"context"
	"encoding/json"
	"os"

	"demesne/runner"
	"demesne/runner/files"
)

// Files does one thing with the files of the sandbox, as its user. A path that is not absolute
// begins at /out. The answer is the sandbox's word.
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
