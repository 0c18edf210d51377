package rules

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

const variablesPage = "docs/reference/environment.md"

// TestRuleEnvironment checks that environment.md lists every variable that a program reads by a literal name, and
// no variable of demesne's own that no program reads or sets.
func TestRuleEnvironment(t *testing.T) {
	page := text(t, variablesPage)
	read := regexp.MustCompile(`(?:Getenv|LookupEnv|getenv)\("([A-Za-z_]+)"\)`)
	own := regexp.MustCompile(`"(DEMESNE_[A-Z_]+)["=]`)
	known := map[string]bool{}
	programs(t, func(path, src string) {
		for _, m := range read.FindAllStringSubmatch(src, -1) {
			if name := m[1]; name != "GODEBUG" && name != "CI" && !strings.Contains(page, "`"+name+"`") {
				t.Errorf("%s does not say what %s does, which %s reads", variablesPage, name, path)
			}
		}
		for _, m := range own.FindAllStringSubmatch(src, -1) {
			known[m[1]] = true
		}
	})
	for _, row := range rows(page) {
		names, _, _ := strings.Cut(strings.TrimPrefix(row, "|"), "|")
		for _, name := range regexp.MustCompile(`DEMESNE_[A-Z_]+`).FindAllString(names, -1) {
			if !known[name] {
				t.Errorf("%s has a row for %s, which no program reads", variablesPage, name)
			}
		}
	}
}

// TestMakeBuilds checks that make without a target builds the programs.
func TestMakeBuilds(t *testing.T) {
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	if first := regexp.MustCompile(`(?m)^([a-z-]+):`).FindSubmatch(text); first == nil || string(first[1]) != "build" {
		t.Errorf("the first target is %q", first)
	}
}

// TestRuleWorkflows checks that both workflows run .ci/run, and that each names its tools by a version that cannot change.
func TestRuleWorkflows(t *testing.T) {
	for _, path := range []string{".github/workflows/ci.yml", ".gitlab-ci.yml"} {
		text := text(t, path)
		if !regexp.MustCompile(`(?m)\.ci/run$`).MatchString(text) || !regexp.MustCompile(`govulncheck@v[0-9.]+ `).MatchString(text) {
			t.Errorf("%s does not run .ci/run, or a pinned govulncheck", path)
		}
		for _, m := range regexp.MustCompile(`(?m)uses: (.*)$`).FindAllStringSubmatch(text, -1) {
			if !regexp.MustCompile(`^[\w/-]+@[0-9a-f]{40} # v[0-9.]+$`).MatchString(m[1]) {
				t.Errorf("%s: %q is not pinned by a commit, with its version behind it", path, m[1])
			}
		}
		for _, m := range regexp.MustCompile(`(?m)(?:image|runs-on): (.*)$`).FindAllStringSubmatch(text, -1) {
			if !regexp.MustCompile(`[0-9]`).MatchString(m[1]) || strings.Contains(m[1], "latest") {
				t.Errorf("%s: %q has no version", path, m[1])
			}
		}
	}
}
