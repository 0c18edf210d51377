package runner

import "strings"

// Frontend names a kind of program that callers use. The runner records in the [Spec] of each sandbox the frontend that
// created it. Callers of the command line see every sandbox of their user. Callers of any other frontend see only the
// sandboxes of that frontend and those shared with it.
//
// All programs of one kind have the same frontend. Two MCP servers of one user see the same sandboxes, because
// sandboxes outlive the server that created them.
//
// A server with several callers gives each namespace of callers a frontend: see [FrontendOf]. The runner then keeps
// namespaces apart as it keeps models from the sandboxes of the command line. Names are unique in a namespace. To
// others the sandbox "web" of the namespace "team" has the name "web@team", which no caller can choose.
type Frontend string

// The known frontends.
const (
	FrontendCLI Frontend = ""    // the command line
	FrontendMCP Frontend = "mcp" // a model, through any MCP server of the user
)

// namespaceKind precedes the namespace in a Frontend.
const namespaceKind = "ns:"

// FrontendOf returns the frontend of a namespace.
func FrontendOf(namespace string) Frontend { return Frontend(namespaceKind + namespace) }

// Namespace returns the namespace of f, or "".
func (f Frontend) Namespace() string {
	if ns, ok := strings.CutPrefix(string(f), namespaceKind); ok && IsNamespace(ns) {
		return ns
	}
	return ""
}

// In returns the frontend of a namespace, or f if that is empty.
func (f Frontend) In(namespace string) Frontend {
	if namespace == "" {
		return f
	}
	return FrontendOf(namespace)
}

// IsNamespace reports whether s can be a namespace: lower-case letters, digits and dashes, at most 63.
func IsNamespace(s string) bool {
	return s != "" && len(s) < 64 && s[0] != '-' && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// Full returns the name by which all frontends know a sandbox of f.
func (f Frontend) Full(name string) string {
	if ns := f.Namespace(); ns != "" && name != "" {
		return name + "@" + ns
	}
	return name
}

// Short returns the name by which f knows a sandbox: the inverse of Full.
func (f Frontend) Short(name string) string {
	if ns := f.Namespace(); ns != "" {
		return strings.TrimSuffix(name, "@"+ns)
	}
	return name
}

// Known reports whether f is a known frontend.
func (f Frontend) Known() bool { return f == FrontendCLI || f == FrontendMCP || f.Namespace() != "" }

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
