package devcontainer

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// ID returns ${devcontainerId} of a file. It is the same for each use of the file at this path.
func ID(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:26])
}

// values are what the variables in strings stand for.
type values struct {
	place     Place
	container string            // the workspace in the sandbox
	env       map[string]string // variables in the sandbox; nil: not known yet
	refused   []string          // names of this machine's variables that the caller did not give
	unknown   []string          // words that stand for nothing
	empty     int               // how many variables became nothing
	last      string            // the last of these words
	told      []string          // what the notes have already
	used      int               // bytes that all expanded strings have together
}

// Bounds of what a stranger's file, or the label of an image, does with its variables. An image's variable may have
// megabytes, and a text may name it a hundred thousand times.
const (
	maxExpanded = 4 << 20 // bytes, of all strings together
	maxWord     = 1 << 10 // bytes, of the text between "${" and "}"
	maxRefused  = 256     // variables of this machine
)

var errExpanded = errors.New("its variables expand to too many bytes, or name too many variables of this machine")

// err returns an error if a bound was exceeded. The strings that were expanded are then incomplete.
func (v *values) err() error {
	if v.used > maxExpanded || len(v.refused) > maxRefused {
		return errExpanded
	}
	return nil
}

// inside expands the variables of a string that the sandbox gets. ${localWorkspaceFolder} is the workspace's path there,
// as the path of this machine means nothing in the sandbox.
func (v *values) inside(s string) string { return v.expand(s, v.container, false) }

// shell is inside for a command, whose shell has variables of its own.
func (v *values) shell(s string) string { return v.expand(s, v.container, true) }

// outside expands the variables of a string that names a path of this machine.
func (v *values) outside(s string) string { return v.expand(s, v.place.Dir, false) }

func (v *values) expand(s, local string, shell bool) string {
	var out strings.Builder
	for s != "" && v.err() == nil {
		value, rest := v.next(s, local, shell)
		v.used += len(value)
		out.WriteString(value)
		s = rest
	}
	return out.String()
}

// next returns what the first part of s stands for, which is a text without variables or a variable, and the rest.
func (v *values) next(s, local string, shell bool) (value, rest string) {
	const begin = "${"
	at := strings.Index(s, begin)
	switch {
	case at < 0:
		return s, ""
	case at > 0:
		return s[:at], s[at:]
	}
	rest = s[len(begin):]
	end := strings.IndexByte(rest[:min(len(rest), maxWord)], '}')
	if end <= 0 || strings.Contains(rest[:end], begin) {
		return begin, rest
	}
	word := rest[:end]
	value, known := v.value(word, local)
	kind, _, named := strings.Cut(word, ":")
	switch {
	case known:
		return value, rest[end+1:]
	case kind == "containerEnv", shell && !(named && slices.Contains(editors, kind)): // Image knows it, or the shell
		return begin, rest
	}
	v.lacks(word)
	return "", rest[end+1:]
}

// editors are the kinds of variables that a template or an editor fills in, and a shell does not have.
var editors = []string{"templateOption", "input", "command", "config"}

// lacks records a variable that stands for nothing.
func (v *values) lacks(word string) {
	v.empty, v.last = v.empty+1, word
	if len(v.unknown) <= maxRefused && !slices.Contains(v.unknown, word) && !strings.HasPrefix(word, "localEnv:") && !strings.HasPrefix(word, "env:") {
		v.unknown = append(v.unknown, word)
	}
}

// required expands a string that would name something else if one of its variables were empty.
func (v *values) required(what, s string, expand func(string) string) (string, error) {
	before := v.empty
	value := expand(s)
	if v.empty == before {
		return value, nil
	}
	hint := "write the value in its place"
	switch kind, name, _ := strings.Cut(v.last, ":"); kind {
	case "templateOption":
		hint = "the file is a template: " + hint
	case "localEnv", "env":
		hint = fmt.Sprintf("--env %s gives it", name)
	}
	return "", &Refused{fmt.Errorf("%s: %q: ${%s} is not filled in", what, s, v.last), hint}
}

// untold returns lines about variables that stand for nothing, each once.
func (v *values) untold() (lines []string) {
	for _, name := range v.refused {
		lines = append(lines, fmt.Sprintf("${localEnv:%s}: not given to the sandbox; demesne run --env %s gives it", name, name))
	}
	for _, word := range v.unknown {
		line := fmt.Sprintf("${%s}: not filled in: left out", word)
		if strings.HasPrefix(word, "templateOption:") {
			line += "; the file is a template"
		}
		lines = append(lines, line)
	}
	lines = slices.DeleteFunc(lines, func(line string) bool { return slices.Contains(v.told, line) })
	v.told = append(v.told, lines...)
	return lines
}

// value returns what ${word} stands for. Any other word of a command is left to its shell.
func (v *values) value(word, local string) (string, bool) {
	name, arg, _ := strings.Cut(word, ":")
	arg, otherwise, _ := strings.Cut(arg, ":")
	switch name {
	case "localWorkspaceFolder":
		return local, true
	case "containerWorkspaceFolder":
		return v.container, true
	case "localWorkspaceFolderBasename":
		return filepath.Base(v.place.Dir), true
	case "containerWorkspaceFolderBasename":
		return path.Base(v.container), true
	case "devcontainerId":
		return ID(filepath.Join(v.place.Dir, v.place.File)), true
	case "localEnv", "env":
		return v.local(arg, otherwise), true
	case "containerEnv":
		if v.env == nil {
			return "", false
		}
		if value, ok := v.env[arg]; ok {
			return value, true
		}
		return otherwise, true
	}
	return "", false
}

// local returns a variable of this machine, if the caller gave it.
func (v *values) local(name, otherwise string) string {
	if v.place.Env != nil {
		if value, ok := v.place.Env(name); ok {
			return value
		}
	}
	if otherwise == "" {
		v.lacks("localEnv:" + name)
	}
	if len(v.refused) <= maxRefused && !slices.Contains(v.refused, name) {
		v.refused = append(v.refused, name)
	}
	return otherwise
}
