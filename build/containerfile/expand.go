package containerfile

import (
	"errors"
	"strings"
	"unicode"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/shell"
)

// Bounds of the expansion of variables, in bytes. Without them, ENV A=$A$A in forty lines has a value of a terabyte.
const (
	maxWord     = 1 << 20  // one word, or here-document
	maxExpanded = 64 << 20 // all words of a file
	maxGrowth   = 1 << 28  // what the patterns in a word may produce or compare before its end is known
)

// maxVariables bounds the arguments and environment variables of a stage.
const maxVariables = 4096

var (
	errTooLong   = errors.New("its variables expand to too many bytes")
	errVariables = errors.New("more than 4096 variables")
)

// expander returns a function that replaces $NAME and ${NAME…} in one word.
func (f *File) expander(values map[string]string) instructions.SingleWordExpander {
	lex := shell.NewLex(f.escape)
	return func(word string) (string, error) { return f.expand(lex, word, values) }
}

func (f *File) expand(lex *shell.Lex, word string, values map[string]string) (string, error) {
	if growth(word, values) > maxGrowth {
		return "", errTooLong
	}
	env := &environ{values: values, left: maxWord}
	out, _, err := lex.ProcessWord(word, env)
	if env.left < 0 || len(out) > maxWord || f.expanded.Add(int64(len(out))) > maxExpanded {
		return "", errTooLong
	}
	return out, err
}

// environ is a shell.EnvGetter. It returns at most left bytes in all.
type environ struct {
	values map[string]string
	left   int
}

func (e *environ) Get(key string) (string, bool) {
	v, ok := e.values[key]
	if e.left -= len(v); e.left < 0 {
		return "", ok
	}
	return v, ok
}

func (e *environ) Keys() (names []string) {
	for k := range e.values {
		names = append(names, k)
	}
	return names
}

// growth bounds the bytes that evaluating the patterns of a word takes. ${A//x/y} may replace each byte of A by a copy of y,
// which may be such a word itself. If there are quotes or escapes, each pattern counts as part of all others.
func growth(word string, values map[string]string) int64 {
	flat := !strings.ContainsAny(word, "'\"\\`")
	largest, cost := int64(len(word)), int64(0)
	open := []int64{largest}
	for i := 0; i < len(word); i++ {
		if word[i] == '}' && flat && len(open) > 1 {
			open = open[:len(open)-1]
		}
		if !strings.HasPrefix(word[i:], "${") {
			continue
		}
		name, rest := nameIn(word[i+2:])
		size, last := int64(len(values[name])), open[len(open)-1]
		switch {
		case strings.HasPrefix(rest, "//"):
			last = min(last*(1+2*size), 2*maxGrowth)
		case strings.IndexAny(rest, "/#%") == 0:
			cost = min(cost+last*(1+size), 2*maxGrowth)
		}
		open = append(open, last)
		largest = max(largest, last)
	}
	return max(largest, cost)
}

// nameIn splits text behind "${" into a name and what follows.
func nameIn(text string) (name, rest string) {
	for i, r := range text {
		if r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return text[:i], text[i:]
		}
	}
	return text, ""
}
