package integration

import (
	"strings"
	"testing"
)

// TestRoom checks that a limit which demesne's programs cannot live with is one line, and not a dump of Go's runtime.
func TestRoom(t *testing.T) {
	b := newBox(t)
	for _, args := range []string{"demesne run -- true", "demesne mcp", "demesne ls"} {
		r := b.finish(b.command("/bin/sh", "-c", "ulimit -v 1000000; exec "+bin+"/"+args))
		if r.code != 125 || r.stdout != "" || strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, ": the limit of address space (ulimit -v) is 976 MiB, and demesne's programs need 1536 MiB") {
			t.Errorf("%s: %+v", args, r)
		}
	}
}
