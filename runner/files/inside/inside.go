// Package inside does what is asked in package files. It is demesne-init, executed as a
// command of the sandbox:
//
//	demesne-init files    a request on stdin → its answer on stdout
//
// It has the rights of the sandbox's user and no others, so it checks nothing about
// permissions, and follows links as any program there does; only a walk does not, for it
// would not end. What it answers is bounded, and it says when it left something out.
package inside

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"

	"demesne/runner/files"
)

// Main answers the request on in. It returns an exit status.
func Main(in io.Reader, out io.Writer) int {
	a, err := answer(in)
	if err != nil {
		a = files.Answer{Error: words(err)}
	}
	if json.NewEncoder(out).Encode(a) != nil {
		return 1
	}
	return 0
}

func answer(in io.Reader) (a files.Answer, err error) {
	var r files.Request
	if err := json.NewDecoder(io.LimitReader(in, files.RequestMax)).Decode(&r); err != nil {
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
	}
	return a, err
}

// words is an error without the name of the system call, which is nobody's business: the
// path and what is wrong with it.
func words(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Path + ": " + p.Err.Error()
	}
	return err.Error()
}
