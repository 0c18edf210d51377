package rules

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestRuleBuildCases compares the counts of docs/explanation/build-cases.md with its lists and with the rows of
// integration/testdata/build. Each published case is in one place, and each test that is named exists.
func TestRuleBuildCases(t *testing.T) {
	page := text(t, "docs/explanation/build-cases.md")
	rows, place := caseRows(t)
	listed := map[string]int{}
	for _, c := range caseLists(t, page) {
		listed[c.section] += len(c.names)
		for _, name := range c.names {
			if place[name] != "" {
				t.Errorf("%q is in %s and in %q", name, place[name], c.title)
			}
			place[name] = c.title
		}
	}
	if want := fmt.Sprintf("has %d rows", rows); !strings.Contains(page, want) {
		t.Errorf("the page does not say %q", want)
	}
	inRows := len(place) - listed["Other tests"] - listed["Cases that do not apply"]
	want := [4]int{len(place), inRows, listed["Other tests"], listed["Cases that do not apply"]}
	sums := [4]int{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\S+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$`).FindAllStringSubmatch(page, -1) {
		var got [4]int
		for i := range got {
			got[i], _ = strconv.Atoi(m[i+2])
		}
		if got[0] != got[1]+got[2]+got[3] {
			t.Errorf("%s: %d is not the sum of %v", m[1], got[0], got[1:])
		}
		if m[1] != "all" {
			for i := range sums {
				sums[i] += got[i]
			}
		} else if got != want || sums != want {
			t.Errorf("all: %v, the lists above it have %v, and the rows and lists %v", got, sums, want)
		}
	}
}

// caseRows returns the number of rows of testdata/build, and the published cases that they stand for.
func caseRows(t *testing.T) (rows int, place map[string]string) {
	t.Helper()
	place = map[string]string{}
	files, err := filepath.Glob("../testdata/build/*.cases")
	if err != nil || len(files) == 0 {
		t.Fatalf("tables: %q, %v", files, err)
	}
	for _, file := range files {
		for _, row := range strings.Split("\n"+text(t, "integration/testdata/build/"+filepath.Base(file)), "\n=== ")[1:] {
			rows++
			head, _, _ := strings.Cut(row, "\n--- ")
			for line := range strings.Lines(head) {
				if names, ok := strings.CutPrefix(strings.TrimSpace(line), "like: "); ok {
					for _, name := range strings.Split(strings.ReplaceAll(names, `\,`, "\x00"), ", ") {
						place[strings.ReplaceAll(name, "\x00", ",")] = filepath.Base(file)
					}
				}
			}
		}
	}
	return rows, place
}

// caseList is a line of the page that lists cases.
type caseList struct {
	section, title string
	names          []string
}

// caseLists returns the lists of the page, and checks the number and the tests in the title of each.
func caseLists(t *testing.T, page string) (all []caseList) {
	t.Helper()
	tests := map[string]bool{}
	for _, p := range sources(t) {
		for name := range p.tests {
			tests[name] = true
		}
	}
	section := ""
	item, name := regexp.MustCompile(`^\* \*\*(.+)\*\* \((\d+)\): (.+)\.$`), regexp.MustCompile("`([^`]+)`")
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section = title
		}
		m := item.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		c := caseList{section: section, title: m[1]}
		for _, n := range name.FindAllStringSubmatch(m[3], -1) {
			c.names = append(c.names, n[1])
		}
		if fmt.Sprint(len(c.names)) != m[2] {
			t.Errorf("%s: %d cases, not %s", c.title, len(c.names), m[2])
		}
		for _, test := range regexp.MustCompile(`\bTest[A-Z]\w+(\*?)`).FindAllStringSubmatch(c.title, -1) {
			if test[1] == "" && !tests[test[0]] {
				t.Errorf("%s: there is no %s", c.title, test[0])
			}
		}
		all = append(all, c)
	}
	return all
}
