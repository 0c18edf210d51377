// Package files defines requests about single files of a sandbox. A request reads, writes or edits a file,
// lists a directory, or finds files by name or by content.
//
//	caller → demesne-init files, executed in the sandbox:  Request, JSON, on stdin
//	demesne-init → caller:                                 Answer, JSON, on stdout
//
// [Serve] serves them in the sandbox, as the sandbox's user. There the kernel resolves paths and links and checks
// permissions. No path or link of the sandbox is ever followed on the host: callers use the types and [ReadAnswer].
// The package imports little, because every caller links it.
//
// An answer comes from an untrusted place, and untrusted code may have written it. [ReadAnswer] bounds its
// size. Callers must treat its content as mere text.
package files

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Size limits of requests and answers.
const (
	// requestMax bounds a request, and thereby the size of a write, in bytes of JSON.
	requestMax = 48 << 20
	// answerMax bounds an answer, in bytes of JSON.
	answerMax = 4 << 20
	// readMax bounds the text or the bytes of a file in one answer.
	readMax = 256 << 10
)

// Request is one operation: exactly one member is set. A path is absolute or relative to the working directory
// of the request.
type Request struct {
	Read  *Read  `json:"read,omitempty"`
	Write *Write `json:"write,omitempty"`
	Edit  *Edit  `json:"edit,omitempty"`
	List  *List  `json:"list,omitempty"`
	Glob  *Glob  `json:"glob,omitempty"`
	Grep  *Grep  `json:"grep,omitempty"`

	Collect *Collect `json:"collect,omitempty"`
}

// Read asks for lines of a text file, or with Bytes for bytes of any file.
type Read struct {
	Path   string `json:"path"`
	Offset int64  `json:"offset,omitempty"` // the first line or byte, from 1; 0 means 1
	Limit  int64  `json:"limit,omitempty"`  // lines or bytes; 0: 2000 lines, or at most readMax bytes
	Bytes  bool   `json:"bytes,omitempty"`
}

// Write creates a file or replaces its content, and creates missing parent directories.
type Write struct {
	Path    string `json:"path"`
	Content []byte `json:"content"`
	Private bool   `json:"private,omitempty"` // a new file has mode 0600, not 0644
}

// Edit replaces one passage of a file, or with All every occurrence. If no text matches exactly, the search
// repeats by whole lines and ignores more and more white space.
type Edit struct {
	Path string `json:"path"`
	Old  string `json:"old"`
	New  string `json:"new"`
	All  bool   `json:"all,omitempty"`
}

// List asks for the entries of a directory, Depth levels deep; 0 means 1.
type List struct {
	Path  string `json:"path,omitempty"`
	Depth int    `json:"depth,omitempty"`
}

// Glob asks for files by name: * ? [a-z] {a,b} within one name, ** across directories. A pattern without a
// slash matches the last name, at any depth below Path.
type Glob struct {
	Path    string `json:"path,omitempty"`
	Pattern string `json:"pattern"`
}

// Grep asks for lines that match a Go regular expression (RE2: no back references, time linear in the text).
type Grep struct {
	Path       string `json:"path,omitempty"` // a directory or a file
	Pattern    string `json:"pattern"`
	Glob       string `json:"glob,omitempty"` // only files that match, as for Glob
	IgnoreCase bool   `json:"ignore_case,omitempty"`
	Context    int    `json:"context,omitempty"` // lines before and after each match
	Mode       Mode   `json:"mode,omitempty"`
	Most       int    `json:"most,omitempty"` // lines, or files; 0: 100, which suits a model
}

// Collect asks for small files by name, with their contents: programs look for their configuration in several
// directories so.
type Collect struct {
	// Patterns are absolute, with * ? [a-z] within one name. The first name may be $NAME: an environment variable of the
	// sandbox. It stands for each of the directories in its value, which colons separate, as in PATH.
	Patterns []string `json:"patterns"`
}

// Mode selects the output of a search.
type Mode string

// Values of Mode; the empty value means Lines.
const (
	Lines  Mode = "content"
	Names  Mode = "files_only"
	Counts Mode = "count"
)

// Modes lists the values of Mode.
func Modes() []Mode { return []Mode{Lines, Names, Counts} }

// Answer has the member that corresponds to the request's, or Error.
type Answer struct {
	Error   string   `json:"error,omitempty"`
	Content *Content `json:"content,omitempty"`
	Written *Written `json:"written,omitempty"`
	Edited  *Edited  `json:"edited,omitempty"`
	Entries *Entries `json:"entries,omitempty"` // of List and Glob
	Matches *Matches `json:"matches,omitempty"`

	Collected *Collected `json:"collected,omitempty"`
}

// Content is the result of a [Read].
type Content struct {
	Text   string `json:"text"`             // each line preceded by its number and a tab
	Bytes  []byte `json:"base64,omitempty"` // replaces Text if bytes were requested
	Binary bool   `json:"binary,omitempty"` // the file is binary and Text is empty
	Size   int64  `json:"size"`             // of the whole file, in bytes
	Next   int64  `json:"next_offset,omitempty"`
	Cut    bool   `json:"truncated,omitempty"` // the file continues at Next, or a line was cut
}

// Written is the result of a [Write].
type Written struct {
	Bytes   int64 `json:"bytes"`
	Created bool  `json:"created"`
}

// Edited is the result of an [Edit].
type Edited struct {
	Replaced int    `json:"replaced"`
	Line     int    `json:"line"`              // of the first replacement
	Ignored  string `json:"ignored,omitempty"` // differences that the search had to ignore
}

// Entries is the result of a [List] or a [Glob].
type Entries struct {
	Entries []Entry `json:"entries"`
	Cut     bool    `json:"truncated,omitempty"`
}

// Collected is the result of a [Collect]: regular files in the order of the patterns, each path once.
type Collected struct {
	Files []File `json:"files"`
	Cut   bool   `json:"truncated,omitempty"`
}

// File is a regular file. Content is nil if the file is large or cannot be read.
type File struct {
	Path       string `json:"path"`
	Size       int64  `json:"size"`
	Executable bool   `json:"executable,omitempty"` // for a user at least
	Content    []byte `json:"content,omitempty"`
}

// Entry is a file of any kind.
type Entry struct {
	Path     string `json:"path"`
	Type     string `json:"type"` // file, directory, link or other
	Size     int64  `json:"size"`
	Mode     string `json:"mode"`             // as in ls -l
	Modified int64  `json:"modified_unix"`    // seconds
	Target   string `json:"target,omitempty"` // of a link
}

// Matches is the result of a [Grep].
type Matches struct {
	Lines  []Line  `json:"lines,omitempty"`
	Files  []Count `json:"files,omitempty"` // in the other modes
	Total  int     `json:"matches"`         // found before the search stopped
	Binary int     `json:"binary_files,omitempty"`
	Cut    bool    `json:"truncated,omitempty"`
}

// Line is a matching line or a context line.
type Line struct {
	Path    string `json:"path"`
	Line    int    `json:"line"`
	Text    string `json:"text"`
	Context bool   `json:"context,omitempty"` // a context line
}

// Count is the number of matches in a file; 0 if they were not counted.
type Count struct {
	Path  string `json:"path"`
	Count int    `json:"count,omitempty"`
}

// Check validates a request before it is sent.
func (r Request) Check() error {
	var set []string
	need := func(name, value string, there bool) error {
		set = append(set, name)
		switch {
		case there && value == "":
			return fmt.Errorf("%s is required", name)
		case strings.ContainsRune(value, 0):
			return fmt.Errorf("%s has a NUL byte", name)
		}
		return nil
	}
	var err error
	if r.Read != nil {
		err = need("path", r.Read.Path, true)
	}
	if r.Write != nil {
		err = errors.Join(err, need("path", r.Write.Path, true))
	}
	if r.Edit != nil {
		err = errors.Join(err, need("path", r.Edit.Path, true))
	}
	if r.List != nil {
		err = errors.Join(err, need("path", r.List.Path, false))
	}
	if r.Glob != nil {
		err = errors.Join(err, need("pattern", r.Glob.Pattern, true))
	}
	if r.Grep != nil {
		err = errors.Join(err, need("pattern", r.Grep.Pattern, true))
	}
	if r.Collect != nil {
		err = errors.Join(err, need("patterns", strings.Join(r.Collect.Patterns, ""), true))
	}
	if err == nil && len(set) != 1 {
		return fmt.Errorf("a request has one operation, not %d", len(set))
	}
	return err
}

// ErrAnswer means that the received data is too long or not an Answer.
var ErrAnswer = errors.New("the sandbox sent no reply")

// ReadAnswer reads an answer. It returns the answer's Error as an error.
func ReadAnswer(r io.Reader) (*Answer, error) {
	raw, err := io.ReadAll(io.LimitReader(r, answerMax+1))
	if err != nil {
		return nil, err
	}
	var a Answer
	if len(raw) > answerMax || json.Unmarshal(raw, &a) != nil {
		return nil, ErrAnswer
	}
	if a.Error != "" {
		line, _, _ := strings.Cut(a.Error, "\n")
		return nil, errors.New(line[:min(len(line), 4096)])
	}
	return &a, nil
}
