package agents

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"demesne/internal/lazy"
	"demesne/internal/text"
)

// telling are the arguments of a tool call that say most, best first.
var telling = []string{
	"command", "cmd", "file_path", "filePath", "path", "pattern", "query", "url", "skill", "description", "prompt", "name", "title", "input",
}

// summary returns the arguments of a tool call as a short line.
func summary(args json.RawMessage) string {
	var named map[string]json.RawMessage
	if json.Unmarshal(args, &named) == nil {
		for _, name := range telling {
			if s := word(named[name]); s != "" {
				return oneLine(s, summaryKept)
			}
		}
	}
	var b bytes.Buffer
	if len(args) > longestLine || json.Compact(&b, args) != nil || b.String() == "null" || b.String() == "{}" {
		return ""
	}
	return oneLine(b.String(), summaryKept)
}

// word returns a string, or a list of strings with spaces between them.
func word(v json.RawMessage) string {
	var s string
	var list []string
	switch {
	case len(v) == 0:
	case json.Unmarshal(v, &s) == nil:
	case json.Unmarshal(v, &list) == nil:
		s = strings.Join(list, " ")
	}
	return s
}

// oneLine returns s as a line of at most n bytes.
func oneLine(s string, n int) string { return text.SafeLine(cut(strings.TrimSpace(s), n)) }

// cut returns at most n bytes of s, and "…" if there were more. It is UTF-8.
func cut(s string, n int) string {
	if len(s) > n {
		end := n
		for end > 0 && n-end < utf8.UTFMax && !utf8.RuneStart(s[end]) {
			end--
		}
		s = s[:end] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// brief returns an id or a name as a short line.
func brief(s string) string { return oneLine(s, nameKept) }

var sessionText = lazy.Regexp{Expr: `^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$`}

// sessionID returns s if it can be an argument of the program, and is not an option.
func sessionID(s string) string {
	if !sessionText.Get().MatchString(s) {
		return ""
	}
	return s
}
