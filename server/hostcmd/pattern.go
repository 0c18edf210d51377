package hostcmd

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Pattern matches command lines, word by word. Its first word is the program's name, without a wildcard.
//
//	docker restart *        one word after restart
//	docker restart **       any number of further words, as the last word of a pattern
//	journalctl --unit=web-* part of a word
//
// A word has at most one *. As in a shell, it matches no slash and no dot at the beginning of a name. It
// matches no minus sign there either, so it never becomes an option, no control character, and none of =$();|&<>` unless
// its word of the pattern has that one.
type Pattern struct{ words []string }

const (
	one  = "*"
	many = "**"
)

// special are characters with which a word means more than a name to some programs: an assignment, an expression, a file to
// write, or text for a shell. A wildcard matches them only if its word of the pattern has them too.
const special = "=$();|&<>`"

// ParsePattern checks the words of a pattern of allowed commands.
func ParsePattern(words []string) (Pattern, error) {
	p, err := parseDenied(words)
	if err == nil {
		err = checkWide(words)
	}
	if err != nil {
		return Pattern{}, err
	}
	return p, nil
}

// parseDenied checks the words of a pattern of refused commands. It may match every command of a program.
func parseDenied(words []string) (Pattern, error) {
	if len(words) == 0 {
		return Pattern{}, errors.New("empty")
	}
	if isWild(words[0]) {
		return Pattern{}, errWide
	}
	if err := checkProgram(words[0]); err != nil {
		return Pattern{}, err
	}
	for i, w := range words[1:] {
		switch {
		case w == many && i == len(words)-2:
		case strings.Count(w, one) > 1:
			return Pattern{}, fmt.Errorf("word %q: more than one *, or a ** that is not the last word", w)
		}
	}
	if err := checkWords(words); err != nil {
		return Pattern{}, err
	}
	return Pattern{slices.Clone(words)}, nil
}

// checkProgram checks the first word of a command: a name, or an absolute path.
func checkProgram(name string) error {
	switch {
	case name == "":
		return errors.New("the program has no name")
	case strings.HasPrefix(name, "-"):
		return fmt.Errorf("program %q begins with a minus sign", name)
	case filepath.IsAbs(name) && filepath.Clean(name) == name && name != "/":
		return nil
	case strings.Contains(name, "/"), name == ".", name == "..":
		return fmt.Errorf("program %q is neither a name nor a clean absolute path", name)
	}
	return nil
}

// Bounds of a command line.
const (
	maxWords = 64
	maxWord  = 4 << 10  // bytes
	maxLine  = 16 << 10 // bytes of all words
)

func checkWords(words []string) error {
	all := 0
	for _, w := range words {
		all += len(w)
		switch {
		case len(w) > maxWord:
			return fmt.Errorf("a word has more than %d bytes", maxWord)
		case strings.ContainsRune(w, 0):
			return errors.New("a word has a NUL byte")
		case !utf8.ValidString(w):
			return errors.New("a word is not UTF-8")
		}
	}
	if len(words) > maxWords || all > maxLine {
		return fmt.Errorf("more than %d words or %d bytes", maxWords, maxLine)
	}
	return nil
}

// Match reports whether argv is a command of p.
func (p Pattern) Match(argv []string) bool { return p.match(argv, matches) && argv[0] == p.words[0] }

// Denies is Match for a list of refused commands: it errs on the side of true. * matches any word, and the program's
// directory does not count.
func (p Pattern) Denies(argv []string) bool {
	return p.match(argv, anything) && path.Base(argv[0]) == path.Base(p.words[0])
}

func (p Pattern) match(argv []string, word func(pattern, word string) bool) bool {
	want, rest := p.words, false
	if len(want) == 0 || len(argv) == 0 {
		return false
	}
	if want[len(want)-1] == many {
		want, rest = want[:len(want)-1], true
	}
	if len(argv) < len(want) || len(argv) > len(want) && !rest {
		return false
	}
	for i, w := range argv[1:] {
		as := one
		if i+1 < len(want) {
			as = want[i+1]
		}
		if !word(as, w) {
			return false
		}
	}
	return true
}

// matches reports whether a word of a pattern matches one of a command.
func matches(pattern, word string) bool {
	before, after, wild := strings.Cut(pattern, one)
	if !wild {
		return pattern == word
	}
	if len(word) < len(before)+len(after) || !strings.HasPrefix(word, before) || !strings.HasSuffix(word, after) {
		return false
	}
	middle := word[len(before) : len(word)-len(after)]
	if strings.ContainsFunc(middle, func(r rune) bool {
		return r == '/' || r == unicode.ReplacementChar || !unicode.IsPrint(r) || strings.ContainsRune(special, r) && !strings.ContainsRune(pattern, r)
	}) {
		return false
	}
	if last, _ := utf8.DecodeLastRuneInString(before); before != "" && (unicode.IsLetter(last) || unicode.IsDigit(last)) {
		return true
	}
	return middle != "" && middle[0] != '.' && middle[0] != '-'
}

// anything is matches for refusals.
func anything(pattern, word string) bool {
	before, after, wild := strings.Cut(pattern, one)
	if !wild {
		return pattern == word
	}
	return len(word) >= len(before)+len(after) && strings.HasPrefix(word, before) && strings.HasSuffix(word, after)
}

// String returns the words of p, quoted where that is needed.
func (p Pattern) String() string { return Line(p.words) }

// operators are characters that a shell would not pass on as they are.
const operators = "|&;<>()$`\n\r#~!{}[]?*"

var errShell = errors.New("no shell executes commands here: give one program with its arguments, as a list of words")

// Split splits a command in one text at spaces, and obeys quotes and backslashes as a shell does. It refuses what a shell would do
// something else with: nothing is expanded, and a command that needs a shell must not half work.
func Split(line string) (words []string, err error) {
	if len(line) > maxLine {
		return nil, fmt.Errorf("more than %d bytes", maxLine)
	}
	var word strings.Builder
	quote, begun, escaped := rune(0), false, false
	for _, r := range line {
		switch {
		case escaped && quote == '"' && r != '"' && r != '\\':
			return nil, errShell // \$ and \` : the text was meant for a shell
		case escaped:
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped, begun = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote == '"' && (r == '$' || r == '`'):
			return nil, errShell
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, begun = r, true
		case r == ' ' || r == '\t':
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		case strings.ContainsRune(operators, r):
			return nil, errShell
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	if quote != 0 || escaped {
		return nil, errors.New("a quote is not closed")
	}
	if begun {
		words = append(words, word.String())
	}
	if len(words) > 0 && strings.Contains(words[0], "=") {
		return nil, errShell // NAME=VALUE command
	}
	return words, nil
}

// splitPattern splits a pattern in one text at spaces.
func splitPattern(line string) ([]string, error) {
	if strings.ContainsAny(line, strings.ReplaceAll(operators, one, "")+`"'\`) {
		return nil, fmt.Errorf("%w; quotes are not read: write a pattern with such characters as a list", errShell)
	}
	return strings.Fields(line), nil
}
