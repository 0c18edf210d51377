package daemon

import (
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// tomlTree parses text. The decoder validates it and returns the keys in order, but without their lines. A search
// for the keys in that order finds the lines.
func tomlTree(text string) (node, int, error) {
	var top map[string]any
	md, err := toml.Decode(text, &top)
	if err != nil {
		if at, ok := errors.AsType[toml.ParseError](err); ok {
			return node{}, at.Position.Line, errors.New(at.Message)
		}
		return node{}, 0, err
	}
	f := &finder{text: uncommented(text), keys: map[string][]int{}, items: map[string][]int{}}
	for _, key := range md.Keys() {
		f.find(key, top)
	}
	return f.node("", top), 0, nil
}

// uncommented blanks comments, so that a search finds nothing in them.
func uncommented(text string) string {
	b := []byte(text)
	quote, comment := byte(0), false
	for i, c := range b {
		switch {
		case c == '\n':
			quote, comment = 0, false
		case comment:
			b[i] = ' '
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '#':
			b[i], comment = ' ', true
		}
	}
	return string(b)
}

// finder holds the lines of keys, and of strings in lists, by the path of the key. A path has one line for each
// occurrence, in order.
type finder struct {
	text        string
	at          int
	keys, items map[string][]int
}

func (f *finder) find(key toml.Key, top map[string]any) {
	name := regexp.QuoteMeta(key[len(key)-1])
	line := f.next(`(?m)(?:^|[\s{,.\["'])` + name + `["']?\s*[=\].]`)
	p := strings.Join(key, "\x00")
	f.keys[p] = append(f.keys[p], line)
	if len(key) > 1 {
		return
	}
	list, _ := top[key[0]].([]any)
	for _, e := range list {
		if s, ok := e.(string); ok {
			f.items[p] = append(f.items[p], f.next(`["']`+regexp.QuoteMeta(s)+`["']`))
		}
	}
}

// next returns the line of the next match, or of the last match when no other follows.
func (f *finder) next(pattern string) int {
	if m := regexp.MustCompile(pattern).FindStringIndex(f.text[f.at:]); m != nil {
		f.at += m[1] - 1 // the end of a match may begin the next one
	}
	return 1 + strings.Count(f.text[:f.at], "\n")
}

// take removes and returns the next line of a path.
func take(lines map[string][]int, p string, otherwise int) int {
	if len(lines[p]) == 0 {
		return otherwise
	}
	line := lines[p][0]
	lines[p] = lines[p][1:]
	return line
}

// node returns a tree of v, whose path is p.
func (f *finder) node(p string, v any) node {
	n := node{line: take(f.keys, p, 0)}
	switch v := v.(type) {
	case map[string]any:
		n.table, n.fields = true, f.fields(p, v)
	case []map[string]any:
		line := n.line // the list has the line of its first header
		for _, e := range v {
			n.list = append(n.list, node{line: line, table: true, fields: f.fields(p, e)})
			line = take(f.keys, p, n.line)
		}
	case []any:
		for _, e := range v {
			element := f.node("\x00item", e)
			element.line = take(f.items, p, n.line)
			n.list = append(n.list, element)
		}
	case string, int64, bool:
		n.value = v
	case float64:
		n.value = unused("a fraction")
	default: // TOML's only other types
		n.value = unused("a date")
	}
	return n
}

func (f *finder) fields(p string, table map[string]any) (all []field) {
	for _, k := range slices.Sorted(maps.Keys(table)) {
		all = append(all, field{k, f.node(strings.TrimPrefix(p+"\x00"+k, "\x00"), table[k])})
	}
	return all
}
