package devcontainer

import (
	"crypto/sha256"
	"encoding/hex"
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
}

// inside expands the variables of a string that the sandbox gets. ${localWorkspaceFolder} is the workspace's path there,
// as the path of this machine means nothing in the sandbox.
func (v *values) inside(s string) string { return v.expand(s, v.container) }

// outside expands the variables of a string that names a path of this machine.
func (v *values) outside(s string) string { return v.expand(s, v.place.Dir) }

func (v *values) expand(s, local string) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(s, "${")
		word, after, closed := strings.Cut(rest, "}")
		if !found || !closed {
			out.WriteString(s)
			return out.String()
		}
		out.WriteString(before)
		if value, known := v.value(word, local); known {
			out.WriteString(value)
			s = after
		} else {
			out.WriteString("${")
			s = rest
		}
	}
}

// value returns what ${word} stands for. Any other word is left to the shell.
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
	if !slices.Contains(v.refused, name) {
		v.refused = append(v.refused, name)
	}
	return otherwise
}
