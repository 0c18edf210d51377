package files

import (
	"encoding/json"
	"io"

	"demesne/internal/fsutil"
)

// Serve serves the request on in, writes the answer to out and returns an exit status.
//
// It is the half in the sandbox: demesne-init calls it, executed as a command of the sandbox. It has only the
// rights of the sandbox's user, so it does not check permissions itself. It follows links like any program there. Only
// a walk does not follow links, because it would not end. Answers are bounded and say when they are incomplete.
func Serve(in io.Reader, out io.Writer) int {
	a, err := answer(in)
	if err != nil {
		a = Answer{Error: fsutil.PathReason(err)}
	}
	if json.NewEncoder(out).Encode(a) != nil {
		return 1
	}
	return 0
}

func answer(in io.Reader) (a Answer, err error) {
	var r Request
	if err := json.NewDecoder(io.LimitReader(in, requestMax)).Decode(&r); err != nil {
		return a, err
	}
	if err := r.Check(); err != nil {
		return a, err
	}
	switch {
	case r.Read != nil:
		a.Content, err = read(*r.Read)
	case r.Write != nil:
		a.Written, err = write(*r.Write)
	case r.Edit != nil:
		a.Edited, err = edit(*r.Edit)
	case r.List != nil:
		a.Entries, err = list(*r.List)
	case r.Glob != nil:
		a.Entries, err = glob(*r.Glob)
	case r.Grep != nil:
		a.Matches, err = grep(*r.Grep)
	case r.Collect != nil:
		a.Collected, err = collect(*r.Collect)
	}
	return a, err
}
