package rules

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	claimsPage = "docs/security/claims.md"
	casesPage  = "docs/security/cases.md"
	undefended = "not defended"
)

var (
	testName   = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+`)
	advisoryID = regexp.MustCompile(`^(CVE-20[0-9]{2}-[0-9]{4,}|GHSA(-[0-9a-z]{4}){3})[?]?$`)
	caseID     = regexp.MustCompile(`\b[FNPM][1-9][0-9]?\b`)
)

// tests returns the names of all Test and Fuzz functions of the tree.
func tests(t *testing.T) map[string]bool {
	t.Helper()
	have := map[string]bool{}
	for _, p := range sources(t) {
		for name := range p.tests {
			have[name] = true
		}
	}
	return have
}

// rows returns the data rows of all tables in a Markdown text.
func rows(text string) (all []string) {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		header := i+1 < len(lines) && strings.HasPrefix(lines[i+1], "|---")
		if strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "|---") && !header {
			all = append(all, line)
		}
	}
	return all
}

// proven checks that a row names an existing test, or says that the attack is not defended.
func proven(t *testing.T, page, row string, have map[string]bool) {
	t.Helper()
	named := testName.FindAllString(row, -1)
	if len(named) == 0 && !strings.Contains(strings.ToLower(row), undefended) {
		t.Errorf("%s names no test and does not say %q: %s", page, undefended, row)
	}
	for _, name := range named {
		if !have[name] {
			t.Errorf("%s names %s, which does not exist", page, name)
		}
	}
}

// TestRuleSecurityClaims checks that each claim names a test that exists, or says that the attack is not defended.
// SECURITY.md must lead to both lists and stay short.
func TestRuleSecurityClaims(t *testing.T) {
	have, claims := tests(t), rows(text(t, claimsPage))
	for _, row := range claims {
		proven(t, claimsPage, row, have)
	}
	if len(claims) < 160 {
		t.Errorf("%s has %d rows; is a table gone?", claimsPage, len(claims))
	}
	security := text(t, "SECURITY.md")
	for _, name := range testName.FindAllString(security, -1) {
		if !have[name] {
			t.Errorf("SECURITY.md names %s, which does not exist", name)
		}
	}
	for _, link := range []string{"(" + claimsPage + ")", "(" + claimsPage + "#not-defended)", "(" + casesPage + ")"} {
		if !strings.Contains(security, link) {
			t.Errorf("SECURITY.md has no link to %s", link)
		}
	}
	if len(security) > maxSecurity {
		t.Errorf("SECURITY.md has %d bytes, more than %d", len(security), maxSecurity)
	}
}

// TestRuleCases checks that each number of an attack case in test names, comments and documents has its row, and
// that each row names a test. A test that is named after cases must be in the row of each. Each row of an advisory leads to a case.
func TestRuleCases(t *testing.T) {
	have, known := tests(t), map[string]string{}
	var advisories []string
	for _, row := range rows(text(t, casesPage)) {
		id := strings.TrimSpace(strings.Split(row, "|")[1])
		if advisoryID.MatchString(id) {
			advisories = append(advisories, row)
			continue
		}
		if known[id] != "" || !caseID.MatchString(id) {
			t.Errorf("%s: the row of %q is malformed or not the only one", casesPage, id)
		}
		known[id] = row
		proven(t, casesPage, row, have)
	}
	for _, row := range advisories {
		cells := strings.Split(row, "|")
		ids := caseID.FindAllString(cells[len(cells)-2], -1)
		if ids == nil || slices.ContainsFunc(ids, func(id string) bool { return known[id] == "" }) {
			t.Errorf("%s: the row of%sleads to no case", casesPage, cells[1])
		}
	}
	if len(advisories) < 20 {
		t.Errorf("%s has %d advisories; is the table gone?", casesPage, len(advisories))
	}
	for name := range have {
		for _, id := range casesOf(name) {
			if !slices.Contains(testName.FindAllString(known[id], -1), name) {
				t.Errorf("%s: the row of %s does not name %s", casesPage, id, name)
			}
		}
	}
	for path, ids := range casesUsed(t) {
		for _, id := range ids {
			if known[id] == "" {
				t.Errorf("%s names the case %s, which has no row in %s", path, id, casesPage)
			}
		}
	}
}

// casesOf returns the cases in the name of a test: N7 and N10 for TestEscapeN7N10Tunnel.
func casesOf(test string) []string {
	numbers := regexp.MustCompile(`^TestEscape((?:[FNPM][1-9][0-9]?)+)`).FindStringSubmatch(test)
	if numbers == nil {
		return nil
	}
	return regexp.MustCompile(`[FNPM][0-9]+`).FindAllString(numbers[1], -1)
}

// casesUsed returns the cases that each file names: in its comments, or in its text if it is a document.
func casesUsed(t *testing.T) map[string][]string {
	t.Helper()
	used, comment := map[string][]string{}, regexp.MustCompile(`(?m)//.*$`)
	tree(t, func(path string) {
		kind := filepath.Ext(path)
		if kind != ".go" && kind != ".c" && kind != ".md" {
			return
		}
		body := text(t, path)
		if kind == ".go" {
			body = strings.Join(comment.FindAllString(body, -1), "\n")
		}
		if ids := caseID.FindAllString(body, -1); ids != nil {
			used[path] = ids
		}
	})
	return used
}
