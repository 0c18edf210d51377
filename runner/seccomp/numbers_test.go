package seccomp

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"demesne/runner/pid1/pid1api"

	"golang.org/x/sys/unix"
)

// notReviewed are calls in x/sys for which no rule has been considered.
var notReviewed = map[uint32]string{470: "LISTNS", 471: "RSEQ_SLICE_YIELD"}

// TestUnknownNumbers (P27): calls that were not reviewed do not exist.
func TestUnknownNumbers(t *testing.T) {
	newest := reviewed[len(reviewed)-1].last
	for nr, want := range map[uint32]action{
		newest - 1: allow, newest + 1: enosys, 1 << 20: enosys, 1<<30 | unix.SYS_READ: enosys, 1<<32 - 1: enosys,
		reviewed[0].last: allow, reviewed[0].last + 1: enosys, 423: enosys, 0: allow,
	} {
		for _, o := range []pid1api.SeccompOptions{{}, {Nesting: true}, {NoSUID: true, FakeRoot: true}} {
			if got := answer(t, o, auditArch, sys(nr)); got != want {
				t.Errorf("%+v: number %d: %#x, want %#x", o, nr, got, want)
			}
		}
	}
}

// TestReviewedNumbers compares the reviewed numbers with the calls in x/sys. It fails when x/sys adds a call.
// Then decide whether the call needs a rule and extend reviewed; until then list the call in notReviewed.
func TestReviewedNumbers(t *testing.T) {
	known := numbersOf(t, runtime.GOARCH)
	want := maps.Clone(notReviewed)
	for _, s := range reviewed {
		for nr := s.first; nr <= s.last; nr++ {
			if want[nr] != "" || known[nr] == "" {
				t.Errorf("number %d (%q) is reviewed: is it a call, and in notReviewed?", nr, known[nr])
			}
			want[nr] = known[nr]
		}
	}
	for nr, name := range known {
		if want[nr] == "" {
			t.Errorf("number %d (%s) is neither reviewed nor in notReviewed", nr, name)
		}
	}
}

// numbersOf reads the call numbers of an architecture from x/sys.
func numbersOf(t *testing.T, arch string) map[uint32]string {
	t.Helper()
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", "golang.org/x/sys/unix").Output()
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), fmt.Sprintf("zsysnum_linux_%s.go", arch)))
	if err != nil {
		t.Fatal(err)
	}
	known := map[uint32]string{}
	for _, m := range regexp.MustCompile(`(?m)^\s*SYS_(\w+)\s*=\s*(\d+)$`).FindAllStringSubmatch(string(table), -1) {
		nr, err := strconv.ParseUint(m[2], 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		if m[1] != "ARCH_SPECIFIC_SYSCALL" { // a base for the architecture's own numbers
			known[uint32(nr)] = m[1]
		}
	}
	return known
}
