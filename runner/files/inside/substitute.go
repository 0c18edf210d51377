package inside

import (
	"errors"
	"fmt"
	"strings"

	"demesne/runner/files"
)

// span is a passage of a text, in bytes.
type span struct{ from, to int }

// looks are the ways to look for a passage by whole lines, the strictest first: two lines
// are the same when what line makes of them is. What a model writes differs from the file in
// such things, for it has seen the file with line numbers in front.
var looks = []struct {
	ignored string
	line    func(string) string
}{
	{"line ends", func(s string) string { return strings.TrimSuffix(s, "\r") }},
	{"spaces at line ends", func(s string) string { return strings.TrimRight(s, " \t\r") }},
	{"indentation", strings.TrimSpace},
	{"the number of spaces", func(s string) string { return strings.Join(strings.Fields(s), " ") }},
}

// substitute replaces e.Old in text. What is found more than once is replaced only by a
// request that says so.
func substitute(text string, e files.Edit) (string, *files.Edited, error) {
	switch {
	case e.Old == "":
		return "", nil, errors.New("old_string is empty")
	case e.Old == e.New:
		return "", nil, errors.New("old_string and new_string are the same")
	}
	found, ignored := find(text, e.Old)
	if len(found) == 0 {
		return "", nil, errors.New("old_string is not in it")
	}
	if len(found) > 1 && !e.All {
		return "", nil, fmt.Errorf("old_string is in it %d times (lines %s): say more of what is around it, or replace_all", len(found), lineNumbers(text, found))
	}
	var out strings.Builder
	end := 0
	for _, s := range found {
		out.WriteString(text[end:s.from])
		out.WriteString(likeWhat(text[s.from:s.to], e.New))
		end = s.to
	}
	out.WriteString(text[end:])
	return out.String(), &files.Edited{Replaced: len(found), Line: lineOf(text, found[0].from), Ignored: ignored}, nil
}

// likeWhat is fresh with the line ends of what it replaces.
func likeWhat(old, fresh string) string {
	if strings.Contains(old, "\r\n") && !strings.Contains(fresh, "\r\n") {
		return strings.ReplaceAll(fresh, "\n", "\r\n")
	}
	return fresh
}

// find returns where old is in text, as it stands or else with the first of looks that finds
// anything.
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

// findLines looks for the lines of old among those of text. A passage ends with its last
// line's end if old does.
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

// lineNumbers lists the first few.
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
