package rules

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// contextFiles are the files that agents read in directories of their own.
var contextFiles = map[string]bool{"SKILL.md": true, "AGENTS.md": true, "CLAUDE.md": true, "GEMINI.md": true, "QWEN.md": true}

// TestRuleLinks checks that every relative link and picture in the documents leads to a file of the tree, and to a heading
// where it has an anchor, and that a document shows each picture. It also checks that documents and sources name no document that is not in the tree.
func TestRuleLinks(t *testing.T) {
	link, named := regexp.MustCompile(`(?:\]\(|\bsrc="|\bhref=")([^)\s"]+)`), regexp.MustCompile(`(?:docs/[\w/-]+|\b[A-Z]{4,})\.md\b`)
	found, shown := 0, map[string]bool{}
	tree(t, func(path string) {
		source := filepath.Ext(path) == ".go" || filepath.Base(path) == "Makefile"
		if !source && filepath.Ext(path) != ".md" {
			return
		}
		body := text(t, path)
		for _, name := range named.FindAllString(body, -1) {
			if !contextFiles[name] && !inTree(name) && !inTree(filepath.Join(filepath.Dir(path), name)) {
				t.Errorf("%s names %s, which does not exist", path, name)
			}
		}
		if source {
			return
		}
		for _, m := range link.FindAllStringSubmatch(prose(body), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			found++
			target, anchor, _ := strings.Cut(m[1], "#")
			to := path
			if target != "" {
				to = filepath.Join(filepath.Dir(path), target)
			}
			if shown[to] = true; !inTree(to) {
				t.Errorf("%s links to %s, which does not exist", path, m[1])
			} else if anchor != "" && !anchors(text(t, to))[anchor] {
				t.Errorf("%s links to %s, and that document has no such heading", path, m[1])
			}
		}
	})
	tree(t, func(path string) {
		if strings.HasPrefix(path, "docs/pictures/") && filepath.Ext(path) == ".svg" && !shown[path] {
			t.Errorf("no document shows %s", path)
		}
	})
	if found < 50 {
		t.Errorf("the documents have %d links; are they gone?", found)
	}
}

// tree calls f with the path of each file of the tree, relative to its root.
func tree(t *testing.T, f func(path string)) {
	t.Helper()
	const root = "../.."
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (d.Name() == "bin" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")):
			return filepath.SkipDir
		case d.Type().IsRegular():
			f(strings.TrimPrefix(path, root+"/"))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// inTree reports whether a path relative to the tree's root exists and stays in the tree.
func inTree(path string) bool {
	if !filepath.IsLocal(path) {
		return false
	}
	_, err := os.Stat("../../" + path)
	return err == nil
}

// prose returns a document without its fenced blocks and code spans.
func prose(text string) string {
	return regexp.MustCompile("(?s)```.*?```|`[^`\n]*`").ReplaceAllStringFunc(text, func(code string) string {
		return strings.Repeat("\n", strings.Count(code, "\n"))
	})
}

// anchors returns the anchors of a document's headings, as GitHub makes them.
func anchors(text string) map[string]bool {
	all, drop := map[string]bool{}, regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	fences := regexp.MustCompile("(?s)```.*?```")
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(fences.ReplaceAllString(text, ""), -1) {
		all[strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return all
}

// TestRuleReadme checks that README.md is short enough to be read to its end.
func TestRuleReadme(t *testing.T) {
	if n := len(text(t, "README.md")); n > maxReadme {
		t.Errorf("README.md has %d bytes, more than %d", n, maxReadme)
	}
}

// TestRuleCommands checks that the table of docs/reference/cli.md leads to each command.
func TestRuleCommands(t *testing.T) {
	head, commands, _ := strings.Cut(text(t, "docs/reference/cli.md"), "<!-- made by")
	for _, m := range regexp.MustCompile(`(?m)^## demesne (\S+)$`).FindAllStringSubmatch(commands, -1) {
		if !strings.Contains(head, "["+m[1]+"](#demesne-"+m[1]+")") {
			t.Errorf("the table of docs/reference/cli.md does not have %s", m[1])
		}
	}
}
