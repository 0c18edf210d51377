package rules

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// The numbers that the rules enforce.
const (
	mostImports  = 15
	mostUp       = 20
	mostFile     = 550
	usualFile    = 200
	mostFunction = 70
	usualBody    = 12
	mostReadme   = 10_000
	mostSecurity = 6 << 10
	mostAudited  = 7500
)

// numbers is the table of CONTRIBUTING.md.
var numbers = []struct {
	what string
	most int
	rule string
}{
	{"lines of a file", mostFile, "TestRuleShape"},
	{"lines of half of the files", usualFile, "TestRuleShape"},
	{"lines of a function", mostFunction, "TestRuleShape"},
	{"lines of half of the functions", usualBody, "TestRuleShape"},
	{"packages of demesne that a package imports", mostImports, "TestRuleImports"},
	{"of 100 arrows between the files of a package, those that run up", mostUp, "TestRuleArrows"},
	{"functions whose first parameter is a type of the package with methods", 0, "TestRuleMethods"},
	{"bytes of README.md", mostReadme, "TestRuleReadme"},
	{"bytes of SECURITY.md", mostSecurity, "TestRuleSecurityClaims"},
	{"lines between a caller and the kernel", mostAudited, "TestRuleAudit"},
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

// owed lists the packages that do not keep a rule yet, with today's number: the packages it imports, the arrows that
// run up, its functions in disguise. A number only falls. Lower it here with the change that lowers it, and drop a row
// of a package that keeps the rule.
var owed = map[string]map[string]int{
	"TestRuleImports": {
		"build/executor": 22,
		"agents/tree":    20,
		"runner/sandbox": 16,
	},
	"TestRuleArrows": {
		"runner/pid1":               9,
		"server/operate":            12,
		"runner/network":            6,
		"runner/network/supervisor": 2,
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

// settle compares what a rule found with what packages owe. found has a number for each package that does not keep the rule.
func settle(t *testing.T, found map[string]int) {
	t.Helper()
	table := owed[t.Name()]
	for _, dir := range slices.Sorted(maps.Keys(found)) {
		if n, may := found[dir], table[dir]; n > may {
			t.Errorf("%s: %d, at most %d", dir, n, may)
		} else if n < may {
			t.Errorf("%s: %d, and owed allows %d: lower it in owed_test.go", dir, n, may)
		}
	}
	for dir, may := range table {
		if _, over := found[dir]; !over {
			t.Errorf("%s keeps the rule, and owed allows %d: drop its row in owed_test.go", dir, may)
		}
	}
}
