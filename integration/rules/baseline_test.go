package rules

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The numbers that the rules enforce.
const (
	maxImports     = 15
	maxUp          = 20
	maxFile        = 550
	medianFile     = 200
	maxFunction    = 70
	medianFunction = 12
	maxReadme      = 10_000
	maxSecurity    = 6 << 10
	maxAudited     = 7500
)

// numbers is the table of CONTRIBUTING.md.
var numbers = []struct {
	what string
	most int
	rule string
}{
	{"lines of a file", maxFile, "TestRuleShape"},
	{"lines of the median file", medianFile, "TestRuleShape"},
	{"lines of a function", maxFunction, "TestRuleShape"},
	{"lines of the median function", medianFunction, "TestRuleShape"},
	{"packages of demesne that a package imports", maxImports, "TestRuleImports"},
	{"of 100 arrows between the files of a package, those that run up", maxUp, "TestRuleArrows"},
	{"functions whose first parameter is a type of the package with methods", 0, "TestRuleMethods"},
	{"bytes of README.md", maxReadme, "TestRuleReadme"},
	{"bytes of SECURITY.md", maxSecurity, "TestRuleSecurityClaims"},
	{"lines between a caller and the kernel", maxAudited, "TestRuleAudit"},
}

// TestRuleNumbers checks the table of CONTRIBUTING.md against the rules. With -update it writes the table.
func TestRuleNumbers(t *testing.T) {
	const path, head = "../../CONTRIBUTING.md", "| at most | of | test |\n|---|---|---|\n"
	page := text(t, "CONTRIBUTING.md")
	before, rest, found := strings.Cut(page, head)
	_, after, ends := strings.Cut("\n"+rest, "\n\n")
	if !found || !ends {
		t.Fatalf("CONTRIBUTING.md has no table %q", head)
	}
	var rows strings.Builder
	for _, n := range numbers {
		fmt.Fprintf(&rows, "| %d | %s | %s |\n", n.most, n.what, n.rule)
	}
	want := before + head + rows.String() + "\n" + after
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if page != want {
		t.Errorf("the numbers of CONTRIBUTING.md are out of date: go test ./integration/rules -run TestRuleNumbers -update")
	}
}

// baseline lists the packages that do not keep a rule yet, with today's number: the packages it imports, the arrows that
// run up, the functions that should be methods. A number only falls: lower it with the change that allows it.
var baseline = map[string]map[string]int{
	"TestRuleImports": {
		"runner/sandbox": 16,
	},
	"TestRuleArrows": {
		"runner/pid1": 9,
	},
	"TestRuleMethods": {
		"rootfs":               8,
		"rootfs/layers":        2,
		"rootfs/unpack":        1,
		"runner/limits":        2,
		"runner/limits/cgroup": 3,
		"runner/sandbox":       5,
	},
}

// compare compares the packages that a rule found, with their numbers, with the rule's baseline.
func compare(t *testing.T, found map[string]int) {
	t.Helper()
	known := baseline[t.Name()]
	for dir, n := range found {
		if n > known[dir] {
			t.Errorf("%s: %d are too many", dir, n)
		}
	}
	for dir, n := range known {
		if found[dir] < n {
			t.Errorf("%s: %d now, and baseline_test.go has %d: lower it, or drop the row of a package that keeps the rule", dir, found[dir], n)
		}
	}
}

// TestRuleLines prints the hand-written lines without tests by room, with -v. It leaves out testdata, generated code, and
// the libraries of others below server/page/assets/vendor.
func TestRuleLines(t *testing.T) {
	const root = "../.."
	lines, all := map[string]int{}, 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (slices.Contains([]string{"testdata", "tests", "vendor", "bin"}, name) || strings.HasPrefix(name, ".")):
			return fs.SkipDir
		case !d.Type().IsRegular() || strings.HasSuffix(name, "_test.go") || !slices.Contains(written, filepath.Ext(name)):
			return nil
		}
		b, err := os.ReadFile(path)
		if first, _, _ := bytes.Cut(b, []byte("\n")); bytes.Contains(first, []byte("Code generated")) {
			return err
		}
		room, _, _ := strings.Cut(strings.TrimPrefix(path, root+"/"), "/")
		lines[room] += bytes.Count(b, []byte("\n"))
		all += bytes.Count(b, []byte("\n"))
		return err
	})
	if err != nil || all == 0 {
		t.Fatalf("%d lines: %v", all, err)
	}
	for _, room := range slices.Sorted(maps.Keys(lines)) {
		t.Logf("%6d %s", lines[room], room)
	}
	t.Logf("%6d", all)
}

// written are the extensions of files that people write.
var written = []string{".go", ".c", ".h", ".js", ".css", ".html", ".sh", ".py"}
