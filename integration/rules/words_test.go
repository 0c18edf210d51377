package rules

import (
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// unwanted are words and turns that CONTRIBUTING.md's section on language replaces. They name no actor,
// or are not the words of the field.
var unwanted = regexp.MustCompile(`(?i)\b(` + strings.Join([]string{
	`somebody|anybody|whoever|whomever`, `nobody('s)? [a-z]+`, // a user is named nobody
	`(is|are) (?-i:none)\b`, // Python has "is None"
	`(is|are) told`, `tells? of\b`, `that stays?\b`, `of (ours|theirs)\b`,
	`not wanted`, `is wanted here`, `(is|are) not there`, `to be had\b`, `the word of`,
}, `|`) + `)|(?m-i:^(\s*//|#)? ?(Who|Whose|What) [^?\n]*$)`)

// wordsAsData lists the files that have such words as data.
var wordsAsData = map[string]bool{
	"CONTRIBUTING.md":                 true, // the examples of its own section
	"integration/rules/words_test.go": true,
}

// TestRuleWords checks that comments, strings, documents and scripts use none of the unwanted words.
func TestRuleWords(t *testing.T) {
	out, err := exec.Command("git", "-C", "../..", "ls-files", "-z").Output()
	if err != nil {
		t.Skipf("needs a git checkout: %v", err)
	}
	for path := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if wordsAsData[path] {
			continue
		}
		text, err := os.ReadFile(filepath.Join("../..", path))
		if os.IsNotExist(err) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		switch filepath.Ext(path) {
		case ".go":
			tokens(text, func(line int, s string) { report(t, path, line, s) })
		case ".md", ".sh", ".txtar", ".c", ".py", "":
			report(t, path, 1, string(text))
		}
	}
}

func report(t *testing.T, path string, line int, text string) {
	for _, at := range unwanted.FindAllStringIndex(text, -1) {
		t.Errorf("%s:%d: %q", path, line+strings.Count(text[:at[0]], "\n"), strings.TrimSpace(text[at[0]:at[1]]))
	}
}

// tokens calls f with the comments and string literals of a Go file.
func tokens(text []byte, f func(line int, s string)) {
	set := token.NewFileSet()
	file := set.AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)
	for {
		pos, tok, lit := s.Scan()
		switch tok {
		case token.EOF:
			return
		case token.COMMENT, token.STRING:
			f(file.Line(pos), lit)
		}
	}
}
