// Package fileops defines operations on a sandbox's files for programs. Package files has the operations for models. It tells
// the kinds of errors apart, moves whole files without a bound, and watches directories.
//
//	caller → demesne-init tree:  Request, one line of JSON, then the bytes of a Put, in chunks; of a long one in [Shared] memory
//	demesne-init → caller:       Answer, one line of JSON, then the bytes of a Get, in chunks, or one Event a line
//
// Any number of requests follow one another; a Watch is the last one. If a Put fails, or a Get breaks off, demesne-init
// ends. A Read is like a Get, and a Write like a Put, except that a failed Write leaves demesne-init running.
//
// [Serve] serves them in the sandbox, as a user of the sandbox. There the kernel resolves paths and links and checks
// permissions. An answer comes from an untrusted place: its lines are bounded, and callers treat it as mere data.
//
//	fileops.go  the protocol; chunk.go: its streams; shared.go: the memory of a long Put
//	serve.go    the half in the sandbox; watch.go: events; handles.go: parts of open files, for SFTP
package fileops

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Op is an operation of a [Request] request.
type Op string

// The operations. Get and Put carry a file's bytes after the lines of the protocol, Watch events.
const (
	OpStat   Op = "stat"
	OpList   Op = "list"
	OpMkdir  Op = "mkdir" // with missing parents
	OpMove   Op = "move"  // makes missing parents of To
	OpRemove Op = "remove"
	OpGet    Op = "get"
	OpPut    Op = "put"
	OpWatch  Op = "watch"
	OpSpace  Op = "space" // measures the file system
	OpOwn    Op = "own"   // gives the directory Path to Owner, if root owns it
	OpHome   Op = "home"  // finds the account Path, or makes a home directory for the sandbox's user
)

// The operations on open files, and the single calls of the kernel: a client that mounts the files, or copies a part of one,
// needs them. Each acts on exactly one file, and makes no parents.
const (
	OpOpen    Op = "open"    // opens a regular file with Flags and Mode; the answer has its Handle
	OpRead    Op = "read"    // Size bytes at Offset, as a Get; fewer at the end of the file
	OpWrite   Op = "write"   // the bytes of a Put, at most ReadMost, at Offset
	OpClose   Op = "close"   // of a Handle
	OpAttr    Op = "attr"    // sets Attr
	OpRename  Op = "rename"  // replaces To
	OpLink    Op = "link"    // makes To, another name of Path
	OpSymlink Op = "symlink" // makes Path, a link to To, which is text
	OpUnlink  Op = "unlink"
	OpRmdir   Op = "rmdir"
	OpMakeDir Op = "makedir" // with Mode
	OpHere    Op = "here"    // describes the directory in which the process started
)

// Request is one operation. The end of the caller's stream ends a Watch.
type Request struct {
	Op        Op                `json:"op"`
	Dir       string            `json:"dir,omitempty"` // absolute; empty: /
	Path      string            `json:"path"`          // absolute, or relative to Dir; "~/x" is below it too
	To        string            `json:"to,omitempty"`
	Depth     int               `json:"depth,omitempty"`
	Recursive bool              `json:"recursive,omitempty"`
	Meta      map[string]string `json:"meta,omitempty"`  // of a Put: replaces the file's metadata
	Owner     *Owner            `json:"owner,omitempty"` // of what a Put, Mkdir or Move makes; nil: the user who performs it

	Follow bool `json:"follow,omitempty"` // of a Stat: describes the file that a link leads to

	Handle int    `json:"handle,omitempty"`
	Flags  int    `json:"flags,omitempty"` // of open(2)
	Mode   uint32 `json:"mode,omitempty"`
	Offset int64  `json:"offset,omitempty"`
	Size   int    `json:"size,omitempty"`
	Attr   *Attr  `json:"attr,omitempty"`
}

// Attr has the attributes that an OpAttr sets; nil: unchanged.
type Attr struct {
	Size     *int64     `json:"size,omitempty"`
	Mode     *uint32    `json:"mode,omitempty"` // permission bits
	Owner    *Owner     `json:"owner,omitempty"`
	Accessed *time.Time `json:"accessed,omitempty"`
	Modified *time.Time `json:"modified,omitempty"`
}

// Owner has the ids of a user of the sandbox.
type Owner struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
}

// Answer is the first line of an answer.
type Answer struct {
	Errno syscall.Errno `json:"errno,omitempty"`
	Error string        `json:"error,omitempty"`
	Infos []Info        `json:"infos,omitempty"`
	Home  *Home         `json:"home,omitempty"`
	Space *Space        `json:"space,omitempty"`

	Handle int `json:"handle,omitempty"`
}

// Info describes a file. Links are not followed.
type Info struct {
	Path     string            `json:"path"` // absolute
	Type     string            `json:"type"` // file, directory, link or other
	Size     int64             `json:"size"`
	Mode     uint32            `json:"mode"` // permission bits
	Text     string            `json:"text"` // the mode as in ls -l
	UID      uint32            `json:"uid"`
	GID      uint32            `json:"gid"`
	Owner    string            `json:"owner"`
	Group    string            `json:"group"`
	Modified time.Time         `json:"modified"`
	Target   string            `json:"target,omitempty"`
	Real     *Real             `json:"real,omitempty"` // of a link whose target exists
	Meta     map[string]string `json:"meta,omitempty"`
}

// Real describes the file that a link leads to.
type Real struct {
	Path string `json:"path"` // absolute, without links
	Type string `json:"type"` // file, directory or other
	Mode uint32 `json:"mode"` // permission bits
}

// Home describes an account.
type Home struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
	Dir string `json:"dir"`
	// Found says that it is the account asked for, and not the sandbox's own user.
	Found bool `json:"found,omitempty"`
	// Gives says that the process that answers may make files that belong to other users (CAP_CHOWN).
	Gives bool `json:"gives,omitempty"`
}

// Space describes a file system, in bytes.
type Space struct {
	Used  int64 `json:"used"`
	Total int64 `json:"total"`
}

// Event is a change below a watched directory.
type Event struct {
	Name string `json:"name"` // relative to the directory
	Type string `json:"type"` // create, write, remove, rename or chmod
	Info *Info  `json:"info,omitempty"`
}

// Sizes of the protocol's lines.
const (
	lineMost   = 64 << 10 // of a request
	answerMost = 32 << 20
	listMost   = 50_000 // entries of a list
)

// Error is an error of the sandbox's kernel. It matches the errors of package fs.
type Error struct {
	Errno syscall.Errno
	Text  string
}

func (e *Error) Error() string { return e.Text }

// Unwrap returns the kernel's error.
func (e *Error) Unwrap() error { return e.Errno }

// Check validates a request before it is sent.
func (t Request) Check() error {
	for _, path := range []string{t.Dir, t.Path, t.To} {
		if strings.ContainsRune(path, 0) || len(path) > 4096 {
			return &Error{syscall.EINVAL, "path: has a NUL byte, or is too long"}
		}
	}
	if t.Path == "" && t.Handle == 0 || t.To == "" && slices.Contains([]Op{OpMove, OpRename, OpLink, OpSymlink}, t.Op) {
		return &Error{syscall.EINVAL, "path is required"}
	}
	size := 0
	for k, v := range t.Meta {
		size += len(k) + len(v)
		if k == "" || strings.ContainsRune(k+v, 0) {
			return &Error{syscall.EINVAL, fmt.Sprintf("metadata %q: not a name", k)}
		}
	}
	if size > 16<<10 {
		return &Error{syscall.E2BIG, "metadata: more than 16 KiB"}
	}
	return nil
}

// errAnswer means that the received data is too long, or not of this protocol.
var errAnswer = errors.New("the sandbox sent no reply")

// ReadAnswer reads the first line of an answer. It returns the answer's Error as an *[Error].
func ReadAnswer(r *bufio.Reader) (*Answer, error) {
	var a Answer
	err := readLine(r, answerMost, &a)
	if errors.Is(err, io.EOF) {
		err = errAnswer
	}
	if err != nil {
		return nil, err
	}
	if a.Error != "" || a.Errno != 0 {
		line, _, _ := strings.Cut(a.Error, "\n")
		return nil, &Error{a.Errno, line[:min(len(line), 4096)]}
	}
	return &a, nil
}

// ReadEvent reads the next event of a Watch. At its end the error is io.EOF.
func ReadEvent(r *bufio.Reader) (e Event, err error) {
	err = readLine(r, 2*lineMost, &e)
	return e, err
}

// readLine reads one line of JSON of at most most bytes.
func readLine(r *bufio.Reader, most int, to any) error {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > most {
			return errAnswer
		}
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			if errors.Is(err, io.EOF) && len(line) > 0 {
				return errAnswer
			}
			return err
		}
	}
	if json.Unmarshal(line, to) != nil {
		return errAnswer
	}
	return nil
}
