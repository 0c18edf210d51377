package runner

import "strings"

// Door names a kind of program that callers use. The runner records in the [Spec] of each sandbox the door that
// created it. Callers of the command line see every sandbox of their user. Callers of any other door see only the
// sandboxes of that door and those shared with it.
//
// All programs of one kind have the same door. Two MCP servers of one user see the same sandboxes, because
// sandboxes outlive the server that created them.
type Door string

// The known doors.
const (
	DoorCLI Door = ""    // the command line
	DoorMCP Door = "mcp" // a model, through any MCP server of the user
)

// Known reports whether d is a known door.
func (d Door) Known() bool { return d == DoorCLI || d == DoorMCP }

// Owns reports whether d created the sandbox or is the command line. Only an owner may remove a sandbox.
func (d Door) Owns(s *Spec) bool { return d == DoorCLI || s.Door == d }

// Sees reports whether d may use the sandbox.
func (d Door) Sees(s *Spec) bool { return d.Owns(s) || s.Share == d }

// Doors returns a display list of the doors that may use the sandbox, the door of its creator first.
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
