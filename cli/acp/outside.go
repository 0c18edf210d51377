package acp

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"demesne/rootfs/upper"
)

// outside says why a request acts outside of the agent's sandbox, or returns "". Between this look and the editor's, the
// agent can make a file of the project a link: the editor's own rules for files are the last ones.
func outside(root, method string, fields map[string]json.RawMessage) string {
	if strings.HasPrefix(method, "terminal/") {
		return "the editor's terminals are outside of the sandbox"
	}
	if !strings.HasPrefix(method, "fs/") {
		return ""
	}
	var file string
	json.Unmarshal(fields["path"], &file)
	rel, err := filepath.Rel(root, resolved(file))
	switch {
	case !filepath.IsAbs(file) || err != nil || !filepath.IsLocal(rel):
		return fmt.Sprintf("the file %q is outside of the project", file)
	case method != "fs/read_text_file" && upper.GuardedBy(rel) != "":
		return fmt.Sprintf("%s of this machine would execute the file %q, which is read-only in the sandbox", upper.GuardedBy(rel), file)
	}
	return ""
}

// resolved returns a path whose existing part has no links.
func resolved(file string) string {
	file = filepath.Clean(file)
	real, err := filepath.EvalSymlinks(file)
	if err == nil {
		return real
	}
	if _, err := os.Lstat(file); err == nil { // a link to nothing: a write would make its target
		return ""
	}
	if above := filepath.Dir(file); above != file {
		return filepath.Join(resolved(above), filepath.Base(file))
	}
	return file
}
