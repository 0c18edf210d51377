// Package files is what may be asked about the files of a sandbox, one thing at a time: to
// read, write or edit one, to list a directory, to find files by name or by what is in them.
//
//	caller → demesne-init files, executed in the sandbox:  Request, JSON, on stdin
//	demesne-init → caller:                                 Answer, JSON, on stdout
//
// It is done inside (package inside), as the sandbox's user: what a path means, what may be
// read, and where a link leads is the kernel's word there, and no path or link of the
// sandbox's is ever followed on the host. This package is the words only, and links little:
// every caller has it.
//
// An answer comes from where untrusted code runs, and some of that may have written it:
// [ReadAnswer] bounds it, and what is in it is text for whoever asked, no more.
package files

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Bounds of what is asked and answered.
const (
	// RequestMax bounds a request and so what can be written, in bytes of JSON.
	RequestMax = 48 << 20
	// AnswerMax bounds an answer, in bytes of JSON.
	AnswerMax = 4 << 20
	// ReadMax bounds the text or the bytes that one answer has of a file.
	ReadMax = 256 << 10
)

// Request is one thing to do: exactly one member is set. A path is absolute or begins at
// the directory that the request is made in.
type Request struct {
	Read  *Read  `json:"read,omitempty"`
	Write *Write `json:"write,omitempty"`
	Edit  *Edit  `json:"edit,omitempty"`
	List  *List  `json:"list,omitempty"`
	Glob  *Glob  `json:"glob,omitempty"`
	Grep  *Grep  `json:"grep,omitempty"`
}

// Read asks for lines of a text file, or with Bytes for bytes of any file.
type Read struct {
	Path   string `json:"path"`
	Offset int64  `json:"offset,omitempty"` // the first line or byte, from 1; 0 means 1
	Limit  int64  `json:"limit,omitempty"`  // lines or bytes; 0: 2000 lines, or as many bytes as fit
	Bytes  bool   `json:"bytes,omitempty"`
}

// Write makes a file or replaces its content, and makes the directories above it.
type Write struct {
	Path    string `json:"path"`
	Content []byte `json:"content"`
}

// Edit replaces one passage of a file, or with All each that reads so. Text that is nowhere
// as it stands is looked for once more by whole lines, with less and less said about spaces.
type Edit struct {
	Path string `json:"path"`
	Old  string `json:"old"`
	New  string `json:"new"`
	All  bool   `json:"all,omitempty"`
}

// List asks for what is in a directory, Depth levels deep; 0 means 1.
type List struct {
	Path  string `json:"path,omitempty"`
	Depth int    `json:"depth,omitempty"`
}

// Glob asks for files by name: * ? [a-z] {a,b} within one name, ** across directories. A
// pattern without a slash is for the last name, at any depth below Path.
type Glob struct {
	Path    string `json:"path,omitempty"`
	Pattern string `json:"pattern"`
}

// Grep asks for lines that match a regular expression of Go's (RE2: no back references, and
// time linear in the text).
type Grep struct {
	Path       string `json:"path,omitempty"` // a directory or a file
	Pattern    string `json:"pattern"`
	Glob       string `json:"glob,omitempty"` // only files whose name matches, as for Glob
	IgnoreCase bool   `json:"ignore_case,omitempty"`
	Context    int    `json:"context,omitempty"` // lines before and after each match
	Mode       Mode   `json:"mode,omitempty"`
}

// Mode says what a search answers.
type Mode string

// The modes there are; the empty one is Lines.
const (
	Lines  Mode = "content"
	Names  Mode = "files_only"
	Counts Mode = "count"
)

// Modes lists them.
func Modes() []Mode { return []Mode{Lines, Names, Counts} }

// Answer has the member that belongs to the request's, or Error.
type Answer struct {
	Error   string   `json:"error,omitempty"`
	Content *Content `json:"content,omitempty"`
	Written *Written `json:"written,omitempty"`
	Edited  *Edited  `json:"edited,omitempty"`
	Entries *Entries `json:"entries,omitempty"` // of List and Glob
	Matches *Matches `json:"matches,omitempty"`
}

// Content is what a [Read] read.
type Content struct {
	Text   string `json:"text"`             // each line with its number and a tab in front
	Bytes  []byte `json:"base64,omitempty"` // in place of Text, when bytes were asked for
	Binary bool   `json:"binary,omitempty"` // and so without Text
	Size   int64  `json:"size"`             // of the whole file, in bytes
	Next   int64  `json:"next_offset,omitempty"`
	Cut    bool   `json:"truncated,omitempty"` // there is more, from Next; or a line was cut
}

// Written says what a [Write] did.
type Written struct {
	Bytes   int64 `json:"bytes"`
	Created bool  `json:"created"`
}

// Edited says what an [Edit] did.
type Edited struct {
	Replaced int    `json:"replaced"`
	Line     int    `json:"line"`              // of the first
	Ignored  string `json:"ignored,omitempty"` // what had to be left out of account to find it
}

// Entries are files.
type Entries struct {
	Entries []Entry `json:"entries"`
	Cut     bool    `json:"truncated,omitempty"`
}

// Entry is a file of any kind.
type Entry struct {
	Path     string `json:"path"`
	Type     string `json:"type"` // file, directory, link or other
	Size     int64  `json:"size"`
	Mode     string `json:"mode"`             // as ls -l has it
	Modified int64  `json:"modified_unix"`    // seconds
	Target   string `json:"target,omitempty"` // of a link
}

// Matches are what a [Grep] found.
type Matches struct {
	Lines  []Line  `json:"lines,omitempty"`
	Files  []Count `json:"files,omitempty"` // in the other modes
	Total  int     `json:"matches"`         // found until it stopped
	Binary int     `json:"binary_files,omitempty"`
	Cut    bool    `json:"truncated,omitempty"`
}

// Line is one that matched, or one of its neighbours.
type Line struct {
	Path    string `json:"path"`
	Line    int    `json:"line"`
	Text    string `json:"text"`
	Context bool   `json:"context,omitempty"` // a neighbour
}

// Count is how often a file matched; 0 where nobody counted.
type Count struct {
	Path  string `json:"path"`
	Count int    `json:"count,omitempty"`
}

// Check says what is wrong with a request before anybody is asked.
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
	if err == nil && len(set) != 1 {
		return fmt.Errorf("a request asks for one thing, not %d", len(set))
	}
	return err
}

// ErrAnswer says that what came back is no answer.
var ErrAnswer = errors.New("the sandbox sent no answer")

// ReadAnswer reads one. What went wrong inside is an error here.
func ReadAnswer(r io.Reader) (*Answer, error) {
	raw, err := io.ReadAll(io.LimitReader(r, AnswerMax+1))
	if err != nil {
		return nil, err
	}
	var a Answer
	if len(raw) > AnswerMax || json.Unmarshal(raw, &a) != nil {
		return nil, ErrAnswer
	}
	if a.Error != "" {
		line, _, _ := strings.Cut(a.Error, "\n")
		return nil, errors.New(line[:min(len(line), 4096)])
	}
	return &a, nil
}
