package runner

import "strings"

// Frontend names a kind of program that callers use. The runner records in the [Spec] of each sandbox the frontend that
// created it. Callers of the command line see every sandbox of their user. Callers of any other frontend see only the
// sandboxes of that frontend and those shared with it.
//
// All programs of one kind have the same frontend. Two MCP servers of one user see the same sandboxes, because
// sandboxes outlive the server that created them.
type Frontend string

// The known frontends.
const (
	FrontendCLI Frontend = ""    // the command line
	FrontendMCP Frontend = "mcp" // a model, through any MCP server of the user
)

// Known reports whether f is a known frontend.
func (f Frontend) Known() bool { return f == FrontendCLI || f == FrontendMCP }

// Owns reports whether f created the sandbox or is the command line. Only an owner may remove a sandbox.
func (f Frontend) Owns(s *Spec) bool { return f == FrontendCLI || s.Frontend == f }

// Sees reports whether f may use the sandbox.
func (f Frontend) Sees(s *Spec) bool { return f.Owns(s) || s.Share == f }

// Frontends returns a display list of the frontends that may use the sandbox, the frontend of its creator first.
func (s *Spec) Frontends() string {
	frontends := []string{s.Frontend.String()}
	if s.Share != s.Frontend && s.Share != FrontendCLI {
		frontends = append(frontends, s.Share.String())
	}
	return strings.Join(frontends, ",")
}

func (f Frontend) String() string {
	if f == FrontendCLI {
		return "cli"
	}
	return string(f)
}
