package hosttools

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"demesne/internal/fsutil"
)

// Allowlist says what an agent may use, by the name of the server.
type Allowlist map[string]Rule

// Rule is the permission for one server. In the file it is a word or a list of tools, or an object with these fields:
//
//	{"notes": ["search", "read"], "anki": "default", "drawings": {"tools": "*", "generated": ["/home/ada/Pictures"]}}
type Rule struct {
	// Tools is "*" for all tools, "default" for those that the server declares to change nothing (readOnlyHint), or a
	// list of names. An empty list allows none.
	Tools     Tools `json:"tools"`
	Resources bool  `json:"resources"`
	Prompts   bool  `json:"prompts"`

	// Generated lists directories of this machine. A file in one of them that a tool creates or changes, and whose path
	// is in the tool's result, is copied to /workspace/generated, and the path in the result becomes the copy's.
	Generated []string `json:"generated"`
}

// Tools is a set of tools.
type Tools struct {
	All     bool
	Default bool
	Names   []string
}

// UnmarshalJSON reads "*", "default" or a list of names.
func (t *Tools) UnmarshalJSON(b []byte) error {
	var word string
	if json.Unmarshal(b, &word) != nil {
		return json.Unmarshal(b, &t.Names)
	}
	switch word {
	case "*":
		t.All = true
	case "default":
		t.Default = true
	default:
		return fmt.Errorf("%q is neither \"*\" nor \"default\"", word)
	}
	return nil
}

// UnmarshalJSON reads one of the three forms.
func (r *Rule) UnmarshalJSON(b []byte) error {
	type fields Rule // without this method
	if strings.HasPrefix(strings.TrimSpace(string(b)), "{") {
		return json.Unmarshal(b, (*fields)(r))
	}
	return r.Tools.UnmarshalJSON(b)
}

// allows reports whether the tool may be listed and called.
func (t Tools) allows(name string, readOnly bool) bool {
	return t.All || t.Default && readOnly || slices.Contains(t.Names, name)
}

// none reports whether the rule permits nothing.
func (r Rule) none() bool {
	return !r.Tools.All && !r.Tools.Default && len(r.Tools.Names) == 0 && !r.Resources && !r.Prompts
}

// seed is the list that a user starts with, as in jbeshir/demesne: well-known servers, each with the tools that change
// nothing. A server takes part only if a client's configuration has it too.
var seed = []string{
	"alignment", "amazon", "anki", "assets", "bunpro", "image-gen-mcp", "manifold", "mermaid", "supermarkets-uk", "wanikani", "workflowy",
}

const seedHelp = "Tools of this machine's MCP servers that agents in sandboxes may use. \"default\": tools that change nothing; \"*\": all; a list: these; []: none. Servers that are not named are not offered."

// ReadAllowlist reads the file at path, and writes the first one if it does not exist. Names that begin with "_" are
// comments.
func ReadAllowlist(path string) (Allowlist, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		text = seedText()
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			err = fsutil.WriteFile(path, text, 0o600)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read allowlist: %w", err)
	}
	raw := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, fmt.Errorf("read allowlist %q: %w", path, err)
	}
	list := Allowlist{}
	for name, text := range raw {
		if strings.HasPrefix(name, "_") {
			continue
		}
		var r Rule
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("read allowlist %q: server %q: %w", path, name, err)
		}
		list[name] = r
	}
	return list, nil
}

func seedText() []byte {
	first := map[string]any{"_help": seedHelp}
	for _, name := range seed {
		first[name] = "default"
	}
	text, _ := json.MarshalIndent(first, "", "  ") // never fails
	return append(text, '\n')
}
