package rules

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestRulePython checks that the table of what works in docs/guide/server/python.md has a row of each package that make python
// tests, in the version that its list pins, and no other rows. make python UPDATE=1 writes the rows.
func TestRulePython(t *testing.T) {
	const from = "../clients/python/"
	parts, err := os.ReadFile(from + "parts.txt")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/guide/server/python.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "<!-- made by make python UPDATE=1 -->\n| package | path | calls tried | result |\n|---|---|---|---|\n")
	if !found {
		t.Fatal("the page has no table")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(strings.TrimSpace(table), "\n")
	row := regexp.MustCompile(`^\| ([\w-]+) (\S+) \| (E2B|adapter|program) \| [^|]+ \| \d+ (passed|failed|skipped)[^|]* \|$`)
	known := map[string]string{}
	for line := range strings.Lines(string(parts)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Split(strings.TrimSpace(line), "\t")
		if len(words) != 5 {
			t.Fatalf("parts.txt: %q: not five words", line)
		}
		pins, err := os.ReadFile(from + words[1] + ".txt")
		if err != nil {
			t.Error(err)
			continue
		}
		pin := regexp.MustCompile(`(?mi)^` + regexp.QuoteMeta(words[2]) + `==(\S+)$`).FindSubmatch(pins)
		if pin == nil {
			t.Errorf("%s.txt does not pin %s", words[1], words[2])
			continue
		}
		known[words[2]] = string(pin[1])
	}
	shown := map[string]bool{}
	for _, line := range rows {
		m := row.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("a row is malformed: %s", line)
		} else if known[m[1]] != m[2] {
			t.Errorf("%s: the table has version %s, and %q is pinned", m[1], m[2], known[m[1]])
		} else {
			shown[m[1]] = true
		}
	}
	for name := range known {
		if !shown[name] {
			t.Errorf("%s: the table has no row", name)
		}
	}
}
