package install

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
)

// errUnknown means that no client has the given name.
var errUnknown = errors.New("unknown")

// server is the name of demesne's entry.
const server = "demesne"

// Client is a program that starts MCP servers.
type Client struct {
	Name    string
	path    func(Place) string
	project string // path in a project's directory; empty: the client has no such file
	key     string // of the servers

	head, tail string // members of an entry around command and args
	toml       bool   // the file is TOML, and not JSON
	list       bool   // an entry's command is a list with its arguments
	comments   bool   // the client accepts comments and trailing commas
}

// Settings are what an entry says in addition to the program.
type Settings struct {
	Tools string   // tool sets; empty: no change
	Env   []string // NAME=VALUE
}

// Place locates a user's files.
type Place struct {
	Home    string
	Env     func(string) string
	TOML    func(text string) error // checks TOML syntax; the error names the line
	Project string                  // directory of a project, whose file is used instead of the user's; empty: none
}

// lineError is an error at one line of a file.
type lineError struct {
	error
	line int
}

func (e *lineError) Unwrap() error { return e.error }

// arguments returns the arguments of an entry with those settings. was is the command that the entry has, if any; its
// arguments stay if it starts this server.
func (s Settings) arguments(was []string) []string {
	args := []string{"mcp"}
	switch {
	case len(was) > 1 && was[1] == "mcp":
		args = slices.Clone(was[1:])
	case len(was) > 0 && filepath.Base(was[0]) == "demesne-mcp":
		args = append(args, was[1:]...)
	}
	if s.Tools == "" {
		return args
	}
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "--tools":
			args = slices.Delete(args, i, min(i+2, len(args)))
			i--
		case strings.HasPrefix(args[i], "--tools="):
			args = slices.Delete(args, i, i+1)
			i--
		}
	}
	return append(args, "--tools", s.Tools)
}
