package devcontainer

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The parser takes the part of YAML that files of one service are written in: mappings and sequences by indentation, in
// brackets on one line, and texts on one line. It refuses everything else with the line: anchors, aliases, tags, texts of
// several lines, several documents, tabs, and keys that occur twice. So this parser cannot read a file differently from other
// tools.

// node is a value of a YAML file.
type node struct {
	kind  kind
	text  string // of a text
	line  int
	items []*node  // of a list
	keys  []member // of a map, in the file's order
}

type member struct {
	key   string
	line  int
	value *node
}

type kind int

const (
	none kind = iota // null, or no value
	word
	list
	table
)

func (k kind) String() string { return [...]string{"nothing", "a text", "a list", "a mapping"}[k] }

// maxDepth bounds the values within values.
const maxDepth = 32

// yamlError is an error at a line.
type yamlError struct {
	line int
	err  error
}

func (e *yamlError) Error() string { return fmt.Sprintf("line %d: %v", e.line, e.err) }
func (e *yamlError) Unwrap() error { return e.err }

func at(line int, format string, args ...any) error {
	return &yamlError{line, fmt.Errorf(format, args...)}
}

// row is a line that is neither empty nor a comment.
type row struct {
	line, indent int
	text         string // without the indentation
}

// yamlParser reads the rows from the first on.
type yamlParser struct {
	rows  []row
	depth int
}

// parseYAML parses a file of one document.
func parseYAML(text []byte) (*node, error) {
	if len(text) > MaxSize {
		return nil, fmt.Errorf("longer than %d bytes", MaxSize)
	}
	if !utf8.Valid(text) {
		return nil, errors.New("is not UTF-8")
	}
	p := &yamlParser{}
	if err := p.split(strings.TrimPrefix(string(text), "\ufeff")); err != nil {
		return nil, err
	}
	if len(p.rows) == 0 {
		return &node{line: 1}, nil
	}
	n, err := p.block(p.rows[0].indent)
	if err == nil && len(p.rows) > 0 {
		err = at(p.rows[0].line, "is indented in another way than the lines above")
	}
	return n, err
}

func (p *yamlParser) split(text string) error {
	begun := false
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSuffix(line, "\r")
		rest := strings.TrimLeft(line, " ")
		control := strings.IndexFunc(line, func(r rune) bool { // also what some parsers take for the end of a line
			return r < ' ' && r != '\t' || 0x7f <= r && r < 0xa0 || r == 0x2028 || r == 0x2029 || r == 0xfeff
		})
		switch {
		case control >= 0:
			return at(i+1, "has a control character")
		case strings.TrimLeft(rest, "\t") == "" || rest[0] == '#':
			continue
		case strings.Contains(rest, "\t"):
			return at(i+1, "has a tab")
		case line == "---" && len(p.rows) == 0 && !begun:
			begun = true
			continue
		case strings.HasPrefix(line, "---") || strings.HasPrefix(line, "..."):
			return at(i+1, "several documents are not supported")
		case line[0] == '%':
			return at(i+1, "directives are not supported")
		}
		p.rows = append(p.rows, row{i + 1, len(line) - len(rest), strings.TrimRight(rest, " ")})
	}
	return nil
}

// block parses the mapping or the sequence whose lines have an indentation.
func (p *yamlParser) block(indent int) (n *node, err error) {
	if p.depth++; p.depth > maxDepth {
		return nil, at(p.rows[0].line, "more than %d levels", maxDepth)
	}
	defer func() { p.depth-- }()
	n = &node{kind: table, line: p.rows[0].line}
	add := p.member
	if isItem(p.rows[0].text) {
		n.kind, add = list, p.item
	}
	for len(p.rows) > 0 && p.rows[0].indent == indent && isItem(p.rows[0].text) == (n.kind == list) && err == nil {
		err = add(n)
	}
	if err == nil && len(p.rows) > 0 && p.rows[0].indent > indent {
		err = at(p.rows[0].line, "is indented in another way than the lines above")
	}
	return n, err
}

func isItem(text string) bool { return text == "-" || strings.HasPrefix(text, "- ") }

// item parses an item of a sequence. What follows the dash may be the first line of a mapping or of another sequence.
func (p *yamlParser) item(n *node) error {
	r := p.rows[0]
	rest := strings.TrimLeft(r.text[1:], " ")
	if rest != "" && rest[0] != '#' {
		_, _, isMap, err := keyOf(rest)
		if err != nil {
			return at(r.line, "%w", err)
		}
		if isMap || isItem(rest) {
			p.rows[0] = row{r.line, r.indent + len(r.text) - len(rest), rest}
			value, err := p.block(p.rows[0].indent)
			n.items = append(n.items, value)
			return err
		}
	}
	p.rows = p.rows[1:]
	value, err := p.value(r, rest, false)
	n.items = append(n.items, value)
	return err
}

// member parses a key of a mapping, with its value.
func (p *yamlParser) member(n *node) error {
	r := p.rows[0]
	key, rest, ok, err := keyOf(r.text)
	switch {
	case err != nil:
		return at(r.line, "%w", err)
	case !ok:
		return at(r.line, "is neither NAME: VALUE nor an item of a list")
	case key == "<<":
		return at(r.line, "<<: merging is not supported")
	}
	for _, m := range n.keys {
		if m.key == key {
			return at(r.line, "%s: occurs twice, also in line %d", key, m.line)
		}
	}
	p.rows = p.rows[1:]
	value, err := p.value(r, rest, true)
	n.keys = append(n.keys, member{key, r.line, value})
	return err
}

// value parses what follows a key or a dash in a row, or the block below it.
func (p *yamlParser) value(r row, rest string, ofKey bool) (*node, error) {
	if rest == "" || rest[0] == '#' {
		if len(p.rows) > 0 && (p.rows[0].indent > r.indent || ofKey && p.rows[0].indent == r.indent && isItem(p.rows[0].text)) {
			return p.block(p.rows[0].indent)
		}
		return &node{line: r.line}, nil
	}
	s := &inline{text: rest, line: r.line}
	n, err := s.value(0)
	if err == nil {
		err = s.end()
	}
	if err != nil {
		return nil, at(r.line, "%w", err)
	}
	if len(p.rows) > 0 && p.rows[0].indent > r.indent {
		return nil, at(p.rows[0].line, "a text of several lines is not supported")
	}
	return n, nil
}

// keyOf splits "KEY: REST". ok is false for a text that begins with no key.
func keyOf(text string) (key, rest string, ok bool, err error) {
	switch text[0] {
	case '[', '{':
		return "", "", false, nil
	case '"', '\'':
		s := &inline{text: text}
		if key, err = s.quoted(); err != nil {
			return "", "", false, err
		}
		rest = strings.TrimLeft(s.text, " ")
	default:
		i := strings.Index(text+" ", ": ")
		if j := strings.Index(text, " #"); i < 0 || j >= 0 && j < i {
			return "", "", false, nil
		}
		key, rest = strings.TrimRight(text[:i], " "), text[i:]
		if err := plainStart(key); err != nil {
			return "", "", false, err
		}
	}
	if rest, ok = strings.CutPrefix(rest, ":"); !ok || rest != "" && rest[0] != ' ' {
		return "", "", false, nil
	}
	return key, strings.TrimLeft(rest, " "), true, nil
}

// inline is a value on one line.
type inline struct {
	text string // what is left
	line int
}

// value parses a text, or a list or a mapping in brackets. Within brackets, depth is greater than 0.
func (s *inline) value(depth int) (*node, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("more than %d levels", maxDepth)
	}
	n := &node{kind: word, line: s.line}
	var err error
	switch s.text[0] {
	case '[':
		n.kind = list
		return n, s.brackets(']', func() error {
			item, err := s.value(depth + 1)
			n.items = append(n.items, item)
			return err
		})
	case '{':
		n.kind = table
		return n, s.brackets('}', func() error { return s.pair(n, depth) })
	case '"', '\'':
		n.text, err = s.quoted()
		return n, err
	}
	n.text, err = s.plain(depth > 0)
	if n.text == "" || n.text == "~" || n.text == "null" {
		n.kind, n.text = none, ""
	}
	return n, err
}

// brackets parses what is in brackets, up to the one that ends it.
func (s *inline) brackets(end byte, one func() error) error {
	s.text = strings.TrimLeft(s.text[1:], " ")
	for {
		if s.text == "" || s.text[0] == '#' {
			return fmt.Errorf("has no %q on its line", string(end))
		}
		if s.text[0] == end {
			s.text = s.text[1:]
			return nil
		}
		if err := one(); err != nil {
			return err
		}
		s.text = strings.TrimLeft(s.text, " ")
		switch {
		case strings.HasPrefix(s.text, ","):
			s.text = strings.TrimLeft(s.text[1:], " ")
		case s.text != "" && s.text[0] != end:
			return fmt.Errorf("neither \",\" nor %q at %q", string(end), short(s.text))
		}
	}
}

// pair parses a member of a mapping in brackets.
func (s *inline) pair(n *node, depth int) (err error) {
	m := member{line: s.line, value: &node{line: s.line}}
	if s.text[0] == '"' || s.text[0] == '\'' {
		m.key, err = s.quoted()
	} else {
		m.key, err = s.plain(true)
	}
	s.text = strings.TrimLeft(s.text, " ")
	rest, ok := strings.CutPrefix(s.text, ":")
	switch {
	case err != nil:
		return err
	case !ok || m.key == "" || m.key == "<<":
		return fmt.Errorf("no KEY: VALUE at %q", short(s.text))
	}
	for _, other := range n.keys {
		if other.key == m.key {
			return fmt.Errorf("%s: occurs twice", m.key)
		}
	}
	if s.text = strings.TrimLeft(rest, " "); s.text != "" && s.text[0] != ',' && s.text[0] != '}' {
		m.value, err = s.value(depth + 1)
	}
	n.keys = append(n.keys, m)
	return err
}

// plain parses a text without quotes. Within brackets it also ends at one, and at a comma.
func (s *inline) plain(within bool) (string, error) {
	end := len(s.text)
	if i := strings.Index(s.text, " #"); i >= 0 {
		end = i
	}
	if within {
		if i := strings.IndexAny(s.text[:end], ",[]{}"); i >= 0 {
			end = i
		}
	}
	text := s.text[:end]
	if i := strings.Index(text+" ", ": "); i >= 0 && within {
		text = text[:i]
	} else if i >= 0 {
		return "", fmt.Errorf("%q: another %q in a value: it needs quotes", short(text), ":")
	}
	s.text = s.text[len(text):]
	text = strings.TrimRight(text, " ")
	if text == "" {
		return "", fmt.Errorf("no value at %q", short(s.text))
	}
	return text, plainStart(text)
}

// plainStart refuses what begins with a character that has a meaning of its own.
func plainStart(text string) error {
	if text == "" {
		return errors.New("has no key")
	}
	names := map[byte]string{'?': "? at the beginning", '&': "an anchor", '*': "an alias", '!': "a tag", '|': "a text of several lines", '>': "a text of several lines",
		'@': "@ at the beginning", '`': "` at the beginning", '%': "% at the beginning", ',': "a comma at the beginning", ']': "] at the beginning", '}': "} at the beginning"}
	if what := names[text[0]]; what != "" {
		return fmt.Errorf("%q: %s is not supported", short(text), what)
	}
	for _, mark := range []string{"-", ":"} {
		if text == mark || strings.HasPrefix(text, mark+" ") {
			return fmt.Errorf("%q: %q at the beginning is not supported here", short(text), mark)
		}
	}
	return nil
}

// quoted parses a text in quotes.
func (s *inline) quoted() (string, error) {
	quote := s.text[0]
	var out strings.Builder
	for i := 1; i < len(s.text); i++ {
		c := s.text[i]
		switch {
		case c == quote && quote == '\'' && strings.HasPrefix(s.text[i+1:], "'"):
			out.WriteByte(c)
			i++
		case c == quote:
			s.text = s.text[i+1:]
			return out.String(), nil
		case c == '\\' && quote == '"':
			// The escapes that YAML has in common with Go.
			r, _, rest, err := strconv.UnquoteChar(s.text[i:], '"')
			if next := s.text[min(i+1, len(s.text)-1)]; err != nil || !strings.ContainsRune(`"\abfnrtvuUx`, rune(next)) || r == 0 {
				return "", fmt.Errorf("%q: an escape that is not supported", short(s.text[i:]))
			}
			out.WriteRune(r)
			i = len(s.text) - len(rest) - 1
		default:
			out.WriteByte(c)
		}
	}
	return "", fmt.Errorf("has no %s on its line that ends a text", string(quote))
}

// end checks that nothing but a comment follows.
func (s *inline) end() error {
	if rest := strings.TrimLeft(s.text, " "); rest != "" && (rest[0] != '#' || len(rest) == len(s.text)) {
		return fmt.Errorf("unexpected %q", short(rest))
	}
	return nil
}

// short returns the beginning of a text, for an error.
func short(s string) string {
	if len(s) > 40 {
		return strings.ToValidUTF8(s[:40], "") + "…"
	}
	return s
}
