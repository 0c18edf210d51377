package integration

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

const (
	referenceStart = "<!-- made by demesne help --markdown; make docs writes it anew -->\n"
	referenceEnd   = "<!-- end of what demesne help --markdown made -->"
)

func readme(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestDocsReference checks that the README's reference is the output of demesne help --markdown.
func TestDocsReference(t *testing.T) {
	b := newBox(t)
	_, rest, ok := strings.Cut(readme(t), referenceStart)
	got, _, ok2 := strings.Cut(rest, referenceEnd)
	if !ok || !ok2 {
		t.Fatal("README.md has no marked reference")
	}
	if want := b.demesne("help", "--markdown").stdout; strings.TrimSpace(got) != strings.TrimSpace(want) {
		t.Error("README.md's reference is not what demesne help --markdown says: make docs")
	}
}

// TestDocsTranscripts runs the README's console blocks: each "$ command" runs as written, and must print the text
// below it. "…" matches any text.
func TestDocsTranscripts(t *testing.T) {
	b := newBox(t)
	b.keepsJobs()
	work := b.mkdir("work")
	blocks := regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(readme(t), -1)
	if len(blocks) < 3 {
		t.Fatalf("%d transcripts in README.md", len(blocks))
	}
	for _, block := range blocks {
		for _, step := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			command, want, _ := strings.Cut(step, "\n")
			for strings.HasSuffix(command, "\\") {
				var more string
				more, want, _ = strings.Cut(want, "\n")
				command += "\n" + more
			}
			cmd := b.command("/bin/bash", "-c", command)
			cmd.Dir = work
			cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"), "DEMESNE_OUTPUT_ROOT="+b.dir+"/outputs")
			both, _ := output(cmd)
			if !matches(both, want) {
				t.Errorf("$ %s\nsays:\n%s\nand README.md says:\n%s", command, both, want)
			}
		}
	}
	b.demesne("ls", "-q")
}

func output(cmd *exec.Cmd) (string, error) {
	raw, err := cmd.CombinedOutput()
	return string(raw), err
}

// matches reports whether text matches a pattern in which "…" stands for any text.
func matches(text, pattern string) bool {
	parts := strings.Split(strings.TrimSpace(pattern), "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	ok, _ := regexp.MatchString("(?s)^"+strings.Join(parts, ".*")+"$", strings.TrimSpace(text))
	return ok
}

// TestDocsHelp checks that --help works for every verb, prints to stdout and shows examples. It also checks the
// shell completions.
func TestDocsHelp(t *testing.T) {
	b := newBox(t)
	for _, verb := range []string{"run", "create", "exec", "ls", "inspect", "stop", "rm", "attach", "check", "completion", "version", "manifest", "help", "pull", "images", "rmi", "import", "export", "save", "gc", "cp", "fork", "snapshot", "diff", "commit", "jobs", "wait", "logs", "cancel", "egress", "mcp"} {
		r := b.demesne(verb, "--help")
		if r.code != 0 || !strings.HasPrefix(r.stdout, "Usage: demesne "+verb) || !strings.Contains(r.stdout, "Examples:") || r.stderr != "" {
			t.Errorf("demesne %s --help: %+v", verb, r)
		}
		if again := b.demesne("help", verb); again.stdout != r.stdout {
			t.Errorf("demesne help %s says something else", verb)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		r := b.demesne("completion", shell)
		if r.code != 0 || !strings.Contains(r.stdout, "demesne") {
			t.Errorf("completion %s: %+v", shell, r)
		}
	}
	check := b.command("/bin/bash", "-n")
	check.Stdin = strings.NewReader(b.demesne("completion", "bash").stdout)
	if r := b.finish(check); r.code != 0 {
		t.Errorf("the completion script: %s", r.stderr)
	}
	if r := b.demesne("no-such-verb"); r.code != 125 || !strings.HasPrefix(r.stderr, "demesne: command ") {
		t.Errorf("an unknown verb: %+v", r)
	}
}
