package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestManual checks that each command and topic has the same words in its help and in the manual, in the same order,
// and that the tools that read manual pages have no complaints.
func TestManual(t *testing.T) {
	dir := t.TempDir()
	if err := writeManual(dir); err != nil {
		t.Fatal(err)
	}
	p := program()
	for _, name := range helpWords() {
		help, err := p.Explain(name, 1000)
		if err != nil {
			t.Fatal(err)
		}
		page := "demesne-" + name + ".1"
		if !slices.Contains(p.Verbs(), name) {
			page = "demesne.1"
		}
		text, err := os.ReadFile(filepath.Join(dir, page))
		if err != nil {
			t.Fatal(err)
		}
		rest := strings.ToLower(plain(string(text)))
		for _, word := range wordsOf(help) {
			_, after, ok := strings.Cut(rest, word)
			if !ok {
				t.Errorf("%s: the manual has no %q where the help has it", name, word)
				break
			}
			rest = after
		}
	}
	pages, err := filepath.Glob(dir + "/*.1")
	if err != nil || len(pages) != len(p.Commands)+1 {
		t.Errorf("%d pages, %v", len(pages), err)
	}
	for _, page := range pages {
		complaints(t, page, "man", "--warnings", "-E", "UTF-8", "-l", page)
		complaints(t, page, "mandoc", "-T", "lint", "-W", "error", page)
	}
}

// plain returns the text of a manual page without its markup.
func plain(roff string) string {
	roff = regexp.MustCompile(`\\f[BIR]`).ReplaceAllString(roff, "")
	return strings.NewReplacer(`\-`, "-", `\e`, `\`, `\(aq`, "'", `\(ga`, "`", `\(ti`, "~", `\(ha`, "^", `\&`, "", `\[u2026]`, "…").Replace(roff)
}

// wordsOf returns the words of a help text in lower case, without its layout.
func wordsOf(help string) (all []string) {
	for _, w := range strings.Fields(strings.ToLower(help)) {
		if w != "usage:" && w != "#" && w != "examples:" {
			all = append(all, strings.TrimSuffix(w, ":"))
		}
	}
	return all
}

// complaints runs a tool, if it is installed, and reports its warnings.
func complaints(t *testing.T, page string, argv ...string) {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "MANROFFSEQ=", "MANPAGER=cat")
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if cmd.Process == nil {
		return // not installed
	}
	if err != nil || errs.Len() > 0 || argv[0] == "mandoc" && len(out) > 0 {
		t.Errorf("%s: %v: %v\n%s", filepath.Base(page), argv, err, errs.String())
	}
}
