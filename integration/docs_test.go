package integration

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// referenceStart is the line of docs/reference/cli.md after which the generated text begins.
const referenceStart = "<!-- made by make docs: the rest is the output of demesne help --markdown -->\n"

func document(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile("../" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestDocsReference checks that docs/reference/cli.md is the output of demesne help --markdown.
func TestDocsReference(t *testing.T) {
	b := newBox(t)
	_, got, ok := strings.Cut(document(t, "docs/reference/cli.md"), referenceStart)
	if !ok {
		t.Fatal("docs/reference/cli.md has no marked reference")
	}
	if want := b.demesne("help", "--markdown").stdout; strings.TrimSpace(got) != strings.TrimSpace(want) {
		t.Error("docs/reference/cli.md is not what demesne help --markdown says: make docs")
	}
}

// documents lists README.md and every document under docs.
func documents(t *testing.T) (all []string) {
	t.Helper()
	err := filepath.WalkDir("../docs", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".md") {
			all = append(all, strings.TrimPrefix(path, "../"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return append(all, "README.md")
}

// TestDocsTranscripts runs the console blocks of README.md and of each document under docs. See transcript.
func TestDocsTranscripts(t *testing.T) {
	total := 0
	for _, name := range documents(t) {
		steps := steps(document(t, name))
		if total += len(steps); len(steps) == 0 {
			continue
		}
		t.Run(name, func(t *testing.T) { transcript(newBox(t), name, steps) })
	}
	if total < 50 {
		t.Errorf("the documents have %d commands in transcripts; are they gone?", total)
	}
}

// step is one command of a transcript, and the output that the document shows for it.
type step struct{ command, want string }

// steps returns the commands in a document's console blocks. A command is a line after "$ ", and continues on the
// next line after a backslash.
func steps(text string) (all []step) {
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(text, -1) {
		for _, lines := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			command, want, _ := strings.Cut(lines, "\n")
			for strings.HasSuffix(command, "\\") {
				var more string
				more, want, _ = strings.Cut(want, "\n")
				command += "\n" + more
			}
			all = append(all, step{command, want})
		}
	}
	return all
}

// transcript runs the commands of a document as written, all in one shell, and each must print the text that the
// document shows. "…" matches any text.
func transcript(b *box, name string, steps []step) {
	b.Helper()
	b.keepsJobs()
	said := b.mkdir("said")
	var script strings.Builder
	for i, s := range steps {
		fmt.Fprintf(&script, "exec > %s/%d 2>&1 < /dev/null\n%s\n", said, i, s.command)
	}
	cmd := b.command("/bin/bash", b.file("transcript", script.String(), 0o644))
	cmd.Dir = b.mkdir("work")
	cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"), "DEMESNE_OUTPUT_ROOT="+b.dir+"/outputs")
	b.finish(cmd)
	for i, s := range steps {
		got, err := os.ReadFile(fmt.Sprintf("%s/%d", said, i))
		if err != nil || !matches(string(got), s.want) {
			b.Errorf("$ %s\nsays:\n%s\nand %s says:\n%s", s.command, got, name, s.want)
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
