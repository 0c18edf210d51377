package rules

import (
	"fmt"
	"os"
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
