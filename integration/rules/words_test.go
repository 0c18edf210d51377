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

// tics are turns that have a plainer form.
var tics = regexp.MustCompile(`(?i)\b(` + strings.Join([]string{
	// so before the verb, for also or as.
	`(and|or|;|,)\s+so (do|does|is|are|has|have|can) (the|a|an|its|these|those|that|this|each|every|one|what|other|images|jobs|files)\b`,
	// is no X, for is not a X.
	`(which|what|they|that|who) (is|are|was|were) no (error|result|[a-z]*(file|directory|path|terminal|image|text|record|message|number|name|script|option|job|model|word|object)s?)\b`,
	// counts, for applies or is used.
	`(exists|that has it|that one|the line) counts\b`, `counts? only if`, `counts before (the|that|its)\b`,
	// alone, for only.
	`(for|to|in|by|from|with|on) (its|the|this|one|your|a) [a-z]+ alone(?: [(]|[.,;:)]|$)`,
	`(has|have|needs?|uses?|sees?|takes?|prints?|gets?|accepts?) ((its|the|this|one|your|a) )?[a-z]+ alone(?: [(]|[.,;:)]|$)`,
	// gone, for disconnected, removed or ended.
	`(that|who|which) (is|are|has|have) gone\b`, `(client|caller|reader|connection|server)s? (is|are|has|have) gone\b`,
	// as X says, for X.
	`as (the |its |that |this )?[a-z]+ says?(?:[.,;)]|$)`,
}, `|`) + `)|(?m-i:(^(\s*//)? ?|[.;]\s+)(So (do|does|is|are|has|have|can|did) [a-z]+ [^?\n]*$|(That|Those) of (a|an|the|its|this|each|any|another)\b))`)

// turns need a second reading: they hide whose a value is, or deny a word to say another one.
var turns = regexp.MustCompile(`(?i)\b(` + strings.Join([]string{
	// those of X, for X's.
	`those of`, `that of (a|an|its|the|each|another|any)\b`, `the one of (a|an|its|the|this|each|another)\b`,
	// no X but Y, for only Y.
	`no [a-z]+ but (a|an|its|the|those|what|that)\b`, `(elsewhere|otherwise) than`, `rests? on no\b`,
	// besides, for in addition to or other than.
	`besides`, `nothing of (it|them)\b`,
}, `|`) + `)`)

// withTurns are the directories with such turns.
var withTurns = regexp.MustCompile(`^(integration/bench|python)/`)

// wordsAsData lists the files that have such words as data.
var wordsAsData = map[string]bool{
	"CONTRIBUTING.md":                 true, // the examples of its own section
	"integration/rules/words_test.go": true,
}

// withTics are the rooms between a caller and the kernel. Their comments may have tics.
var withTics = regexp.MustCompile(`^(runner/(sandbox|engine|container|pid1|ipc|seccomp|userns)|netns|rootfs)/`)

// TestRuleWords checks that comments, strings, documents and scripts use none of the unwanted words, and no tics.
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
	found := unwanted.FindAllStringIndex(text, -1)
	if !withTics.MatchString(path) {
		found = append(found, tics.FindAllStringIndex(text, -1)...)
	}
	if !withTurns.MatchString(path) {
		found = append(found, turns.FindAllStringIndex(text, -1)...)
	}
	for _, at := range found {
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
