package files

import (
	"errors"
	"fmt"
	"strings"
)

// span is a passage of a text, as byte offsets.
type span struct{ from, to int }

// looks are the searches by whole lines, the strictest first. Two lines are equal if line returns the same for
// both. Text from a language model differs from the file in these ways, because the model saw the file with
// line numbers.
var looks = []struct {
	ignored string
	line    func(string) string
}{
	{"line ends", func(s string) string { return strings.TrimSuffix(s, "\r") }},
	{"spaces at line ends", func(s string) string { return strings.TrimRight(s, " \t\r") }},
	{"indentation", strings.TrimSpace},
	{"the number of spaces", func(s string) string { return strings.Join(strings.Fields(s), " ") }},
}

// substitute replaces e.Old in text. Several occurrences require e.All.
func substitute(text string, e Edit) (string, *Edited, error) {
	switch {
	case e.Old == "":
		return "", nil, errors.New("old_string is empty")
	case e.Old == e.New:
		return "", nil, errors.New("old_string and new_string are the same")
	}
	found, ignored := find(text, e.Old)
	if len(found) == 0 {
		return "", nil, errors.New("old_string is not in the file")
	}
	if len(found) > 1 && !e.All {
		return "", nil, fmt.Errorf("old_string is in the file %d times (lines %s): include more surrounding text, or set replace_all", len(found), lineNumbers(text, found))
	}
	var out strings.Builder
	end := 0
	for _, s := range found {
		out.WriteString(text[end:s.from])
		out.WriteString(likeWhat(text[s.from:s.to], e.New))
		end = s.to
	}
	out.WriteString(text[end:])
	return out.String(), &Edited{Replaced: len(found), Line: lineOf(text, found[0].from), Ignored: ignored}, nil
}

// likeWhat returns fresh with the line ends of old.
func likeWhat(old, fresh string) string {
	if strings.Contains(old, "\r\n") && !strings.Contains(fresh, "\r\n") {
		return strings.ReplaceAll(fresh, "\n", "\r\n")
	}
	return fresh
}

// find returns the occurrences of old in text: exact ones, or what the first of looks finds that finds any.
func find(text, old string) (found []span, ignored string) {
	for at := 0; ; {
		i := strings.Index(text[at:], old)
		if i < 0 {
			break
		}
		found = append(found, span{at + i, at + i + len(old)})
		at += i + len(old)
	}
	if found != nil || strings.TrimSpace(old) == "" {
		return found, ""
	}
	for _, l := range looks {
		if found := findLines(text, old, l.line); found != nil {
			return found, l.ignored
		}
	}
	return nil, ""
}

// findLines searches for the lines of old in the lines of text. A passage includes its last line end if old has
// one.
func findLines(text, old string, line func(string) string) (found []span) {
	whole := strings.HasSuffix(old, "\n")
	want := strings.Split(strings.TrimSuffix(old, "\n"), "\n")
	for i := range want {
		want[i] = line(want[i])
	}
	have := strings.SplitAfter(text, "\n")
	same := make([]string, len(have))
	starts := make([]int, len(have)+1)
	for i, l := range have {
		same[i] = line(strings.TrimSuffix(l, "\n"))
		starts[i+1] = starts[i] + len(l)
	}
	for i := 0; i+len(want) <= len(have); i++ {
		if !equal(same[i:i+len(want)], want) {
			continue
		}
		last := i + len(want) - 1
		to := starts[last+1]
		if !whole {
			to = starts[last] + len(strings.TrimRight(have[last], "\r\n"))
		}
		found = append(found, span{starts[i], to})
		i = last
	}
	return found
}

func equal(a, b []string) bool {
	for i := range b {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func lineOf(text string, at int) int { return 1 + strings.Count(text[:at], "\n") }

// lineNumbers lists the first five line numbers of found.
func lineNumbers(text string, found []span) string {
	var b strings.Builder
	for i, s := range found {
		if i == 5 {
			return b.String() + ", …"
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, lineOf(text, s.from))
	}
	return b.String()
}
