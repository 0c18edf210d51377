package integration

import (
	"fmt"
	"regexp"
	"testing"
)

// ofRuntime are the words with which Go's runtime ends a program before any code of demesne, where it finds no address space.
var ofRuntime = regexp.MustCompile("^(fatal error: failed to reserve|(runtime|fatal error): out of memory)")

// TestRoom checks that a limit of address space which demesne's programs cannot live with is one line, and not a dump of Go's
// runtime. With the least limit that is not refused, a run and a sandbox with a network work each time.
func TestRoom(t *testing.T) {
	b := newBox(t)
	under := func(kib int, line string) result {
		return b.finish(b.command("/bin/sh", "-c", fmt.Sprintf("ulimit -v %d; exec %s/%s", kib, bin, line)))
	}
	for _, kib := range []int{100_000, 200_000, 400_000, 1_000_000, 1_500_000, 2_000_000, 3_145_727} {
		refused := fmt.Sprintf("demesne: the limit of address space (ulimit -v) is %d MiB, and demesne's programs need 3072 MiB\n", kib>>10)
		for _, line := range []string{"demesne run -- true", "demesne ls", "demesne mcp"} {
			r := under(kib, line)
			dump := kib < 1_000_000 && r.code == 2 && ofRuntime.MatchString(r.stderr)
			if !dump && (r.code != 125 || r.stderr != refused) || r.stdout != "" {
				t.Errorf("ulimit -v %d: %s: %+v", kib, line, r)
			}
		}
	}
	const enough = 3 << 20
	for range 5 {
		for _, line := range []string{"demesne run -- true", "demesne run --egress none -- true", "demesne run --allow-domain example.test -- true"} {
			if r := under(enough, line); r.code != 0 || r.stderr != "" {
				t.Errorf("ulimit -v %d: %s: %+v", enough, line, r)
			}
		}
	}
}
