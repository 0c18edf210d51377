package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRuleShape: every package is documented, no file is longer than can be read.
func TestRuleShape(t *testing.T) {
	for dir, p := range sources(t) {
		if p.name != "" && p.doc == "" {
			t.Errorf("%s: no package comment", dir)
		}
		for file, n := range p.lines {
			if n > 550 {
				t.Errorf("%s has %d lines, more than 550", file, n)
			}
		}
	}
}

// TestRuleSecurityClaims: each line of SECURITY.md's tables names a test that exists,
// or says that the thing is not defended.
func TestRuleSecurityClaims(t *testing.T) {
	have := map[string]bool{}
	for _, p := range sources(t) {
		for name := range p.tests {
			have[name] = true
		}
	}
	raw, err := os.ReadFile("../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	rows, test := 0, regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+`)
	for n, line := range strings.Split(string(raw), "\n") {
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") || strings.HasPrefix(line, "| claim") {
			continue
		}
		rows++
		named := test.FindAllString(line, -1)
		if len(named) == 0 && !strings.Contains(line, "not defended") {
			t.Errorf("SECURITY.md:%d names no test and does not say %q", n+1, "not defended")
		}
		for _, name := range named {
			if !have[name] {
				t.Errorf("SECURITY.md:%d names %s, which does not exist", n+1, name)
			}
		}
	}
	if rows < 20 {
		t.Errorf("SECURITY.md has %d claims; is its table gone?", rows)
	}
}

// TestRuleNoIgnoredNeeded: a clean clone compiles, because nothing embeds or includes a file
// that git ignores.
func TestRuleNoIgnoredNeeded(t *testing.T) {
	embed := regexp.MustCompile(`(?m)^//go:embed (.+)$`)
	files, _ := filepath.Glob("../*/*.go")
	deeper, _ := filepath.Glob("../*/*/*.go")
	for _, f := range append(files, deeper...) {
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range embed.FindAllStringSubmatch(string(src), -1) {
			for _, pattern := range strings.Fields(m[1]) {
				if got, _ := filepath.Glob(filepath.Join(filepath.Dir(f), pattern)); len(got) == 0 || strings.HasPrefix(pattern, "bin") {
					t.Errorf("%s embeds %s, which a clean clone lacks", f, pattern)
				}
			}
		}
	}
}
