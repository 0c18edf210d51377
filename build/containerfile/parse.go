package containerfile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// MaxFile bounds a Containerfile in bytes.
const MaxFile = 1 << 20

// maxSteps bounds the instructions of a Containerfile. An image has at most oci.MaxLayers layers.
const maxSteps = 4096

// maxStages bounds the stages. Each may need a sandbox at the same time.
const maxStages = 256

// Error is an error in a Containerfile.
type Error struct {
	File string
	Line int // 0: not one line's
	Err  error
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.File, e.Err)
	}
	return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// File is a parsed Containerfile.
type File struct {
	name   string
	stages []instructions.Stage
	args   []instructions.ArgCommand // before the first FROM
	escape rune

	expanded atomic.Int64 // bytes that expansions made, see maxExpanded
}

// Parse reads a Containerfile. name is its name in errors.
func Parse(name string, r io.Reader) (*File, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxFile+1))
	if err != nil {
		return nil, &Error{File: name, Err: err}
	}
	switch {
	case len(text) > MaxFile:
		return nil, &Error{File: name, Err: fmt.Errorf("larger than %d bytes", MaxFile)}
	case bytes.IndexByte(text, 0) >= 0:
		return nil, &Error{File: name, Line: 1 + bytes.Count(text[:bytes.IndexByte(text, 0)], []byte{'\n'}), Err: errors.New("not text: it has a NUL byte")}
	}
	f := &File{name: name}
	tree, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		return nil, f.located(err, 0)
	}
	f.escape = tree.EscapeToken
	if n := len(tree.AST.Children); n > maxSteps {
		return nil, &Error{name, tree.AST.Children[maxSteps].StartLine, fmt.Errorf("more than %d instructions", maxSteps)}
	}
	for _, n := range tree.AST.Children {
		if err := checkNode(n); err != nil {
			return nil, &Error{name, n.StartLine, err}
		}
	}
	if f.stages, f.args, err = instructions.Parse(tree.AST, nil); err != nil {
		return nil, f.located(err, 0)
	}
	switch n := len(f.stages); {
	case n == 0:
		return nil, &Error{File: name, Err: errors.New("no FROM instruction")}
	case n > maxStages:
		return nil, &Error{name, lineAt(f.stages[maxStages].Location), fmt.Errorf("more than %d stages", maxStages)}
	}
	return f, nil
}

// checkNode refuses an instruction that is not text.
func checkNode(n *parser.Node) error {
	err := checkText(n.Original)
	for _, h := range n.Heredocs {
		err = cmp.Or(err, checkText(h.Content))
	}
	return err
}

// located returns err with its line. The parser knows the line of its own errors; other errors get line.
func (f *File) located(err error, line int) error {
	var already *Error
	if err == nil || errors.As(err, &already) {
		return err
	}
	if at, ok := errors.AsType[*parser.LocationError](err); ok && len(at.Locations) > 0 && len(at.Locations[0]) > 0 {
		line = at.Locations[0][0].Start.Line
	}
	if rest, ok := strings.CutPrefix(err.Error(), "dockerfile parse error on line "); ok {
		if _, err := fmt.Sscanf(rest, "%d", &line); err == nil {
			_, rest, _ = strings.Cut(rest, ": ")
		}
		err = errors.New(rest)
	}
	return &Error{f.name, line, err}
}

// lineOf returns the first line of a command.
func lineOf(c instructions.Command) int { return lineAt(c.Location()) }

func lineAt(r []parser.Range) int {
	if len(r) == 0 {
		return 0
	}
	return r[0].Start.Line
}

// checkText refuses text that is not UTF-8. It could not be part of a configuration, and two such instructions would
// have one key.
func checkText(words ...string) error {
	for _, w := range words {
		if !utf8.ValidString(w) {
			return errors.New("not UTF-8 text")
		}
	}
	return nil
}
