package rules

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"testing"
)

// TestRuleCapabilities checks docs/reference/capabilities.md: the rows have the numbers 1 to 127, each has a test or a
// difference, each test, script and executed document exists, and the sums above the table are right.
func TestRuleCapabilities(t *testing.T) {
	const file, last = "docs/reference/capabilities.md", 127
	page, shown, differs := text(t, file), 0, 0
	document := regexp.MustCompile(`\]\(([^)#]+)`)
	table := rows(page)
	for i, row := range table {
		cells := regexp.MustCompile(` *\| *`).Split(strings.Trim(row, "| "), -1)
		if len(cells) == 4 { // the last cell is empty
			cells = append(cells, "")
		}
		if len(cells) != 5 || cells[0] != fmt.Sprint(i+1) || len(strings.Fields(cells[1])) > 12 {
			t.Errorf("row %d is malformed, or its name has more than 12 words: %s", i+1, row)
			continue
		}
		tests, how, proof, differ := regexp.MustCompile(`\b(Test[A-Z]\w+)(?: \(([\w/]+)\))?`), cells[2], cells[3], cells[4]
		if proof != "" {
			shown++
		}
		if proof != "" && differ != "" {
			differs++
		}
		if how == "" || (proof == "") != (how == "not there") || proof+differ == "" {
			t.Errorf("row %d: a row has a test, or the words \"not there\" and a difference", i+1)
		}
		for _, m := range tests.FindAllStringSubmatch(proof, -1) {
			in := 0
			for dir, p := range sources(t) {
				if p.tests[m[1]] && (m[2] == "" || m[2] == dir) {
					in++
				}
			}
			if in != 1 {
				t.Errorf("row %d: %s is a test of %d packages", i+1, m[0], in)
			}
		}
		for _, name := range regexp.MustCompile(`\w+\.txtar`).FindAllString(proof, -1) {
			text(t, "cli/testdata/script/"+name)
		}
		for _, m := range document.FindAllStringSubmatch(proof, -1) {
			if !strings.Contains(text(t, path.Join(path.Dir(file), m[1])), "\n```console\n") {
				t.Errorf("row %d: %s has no commands", i+1, m[1])
			}
		}
	}
	if sums := fmt.Sprintf("%d rows have a test, %d of them with a difference, and %d are missing", shown, differs, last-shown); len(table) != last || !strings.Contains(page, sums) {
		t.Errorf("%s has %d rows, or does not say %q", file, len(table), sums)
	}
}
