package rules

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// maxInit is how many allocations a package may make before main in a program that every command starts: enough for some
// errors, and not for a table or an expression.
const maxInit = 4

// maxInitOf has the libraries that make more.
var maxInitOf = map[string]int{
	"github.com/moby/sys/user": 8, // errors, and the ids of a process
}

// TestRuleInit checks that packages of the programs that every command starts make nothing before main that most commands
// do not need. It counts allocations, because a time depends on the machine. It leaves out the standard library.
func TestRuleInit(t *testing.T) {
	dir := t.TempDir()
	line := regexp.MustCompile(`(?m)^init (\S+) @.*, (\d+) bytes, (\d+) allocs$`)
	for _, program := range []string{"demesne", "demesne-init"} {
		path := filepath.Join(dir, program)
		build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", path, "../../cmd/"+program)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		run := exec.Command(path, "--version")
		run.Env = append(os.Environ(), "GODEBUG=inittrace=1")
		var trace bytes.Buffer
		run.Stderr = &trace
		if err := run.Run(); err != nil {
			t.Fatal(err)
		}
		found := line.FindAllStringSubmatch(trace.String(), -1)
		if len(found) < 20 {
			t.Errorf("%s: no trace of its packages: %s", program, trace.String())
		}
		for _, f := range found {
			first, _, _ := strings.Cut(f[1], "/")
			ours := first == "demesne" || strings.Contains(first, ".")
			allocations, _ := strconv.Atoi(f[3])
			size, _ := strconv.Atoi(f[2])
			if most := max(maxInit, maxInitOf[f[1]]); ours && (allocations > most || size > 1<<10) {
				t.Errorf("%s: package %s makes %d allocations (%d bytes) before main, most %d: make them at the first use, by a function or package lazy", program, f[1], allocations, size, most)
			}
		}
	}
}
