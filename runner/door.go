package runner

import "strings"

// Door names the kind of program that callers come through. Each sandbox carries the door it was made by, which the
// runner writes into its [Spec]. Callers of the command line use every sandbox of their user. Callers of any other
// door use the sandboxes of that door, and those that were shared with it; to them no others exist.
//
// A door is one for all programs of its kind: two MCP servers of one user use the same sandboxes, for these outlive
// the server that made them.
type Door string

// The doors there are.
const (
	DoorCLI Door = ""    // the command line
	DoorMCP Door = "mcp" // a model, by any MCP server of the user
)

// Known says whether d is one of the doors there are.
func (d Door) Known() bool { return d == DoorCLI || d == DoorMCP }

// Owns says whether d made the sandbox, or is the command line: only then may d remove it.
func (d Door) Owns(s *Spec) bool { return d == DoorCLI || s.Door == d }

// Sees says whether d may use the sandbox.
func (d Door) Sees(s *Spec) bool { return d.Owns(s) || s.Share == d }

// Doors lists, for a person, the doors that may use the sandbox, that of its maker first.
func (s *Spec) Doors() string {
	doors := []string{s.Door.String()}
	if s.Share != s.Door && s.Share != DoorCLI {
		doors = append(doors, s.Share.String())
	}
	return strings.Join(doors, ",")
}

func (d Door) String() string {
	if d == DoorCLI {
		return "cli"
	}
	return string(d)
}
