package hostcmd

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Line returns words as one line that a person reads and no word can imitate: a word with anything but plain characters is quoted,
// and all but ASCII is escaped.
func Line(words []string) string {
	var all []string
	for _, w := range words {
		all = append(all, Word(w))
	}
	return strings.Join(all, " ")
}

// Word returns one word for [Line].
func Word(w string) string {
	plain := w != ""
	for _, r := range w {
		plain = plain && (r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) || strings.ContainsRune("-_./:=,+@%^*", r))
	}
	if plain {
		return w
	}
	return strconv.QuoteToASCII(w)
}

// Summary says in one line what a request is for.
func (r *Request) Summary() string {
	switch r.Kind {
	case Exec:
		return Line(r.Argv)
	case Access:
		return "any command like: " + Line(r.Argv)
	case Copy:
		return fmt.Sprintf("copy %s into sandbox %s at %s", Word(r.place()), Word(r.Sandbox), Word(r.Dst))
	case Write:
		return fmt.Sprintf("write %s (%d bytes)", Word(r.place()), r.Size)
	}
	return fmt.Sprintf("%s %s", r.Kind, Word(r.place()))
}

// place returns the file of a request: without links, if it was found.
func (r *Request) place() string {
	if r.File.Path != "" {
		return r.File.Path
	}
	return r.Given
}

// Describe returns all that a person has to know before a decision, a line for each fact.
func (r *Request) Describe(now time.Time) string {
	var b strings.Builder
	line := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&b, "%-10s %s\n", name, text)
		}
	}
	from := "a client"
	if r.Caller.Name != "" {
		from = Word(r.Caller.Name)
	}
	if r.Caller.Over != "" {
		from += " over " + Word(r.Caller.Over)
	}
	if r.Caller.Namespace != "" {
		from += ", namespace " + Word(r.Caller.Namespace)
	}
	line("request", r.ID)
	line("from", fmt.Sprintf("%s, %s ago", from, now.Sub(r.Filed).Round(time.Second)))
	line("wants to", r.Summary())
	line("program", wordOf(r.Program.Path))
	if r.Kind == Exec {
		line("in", Word(r.Dir.Path))
		line("for", "at most "+r.Timeout.String())
		line("variables", strings.Join(r.Env, " "))
	}
	if r.Given != "" && r.Kind != Exec && r.Given != r.File.Path {
		line("named", Word(r.Given)+", which leads there")
	}
	if r.Kind == Write {
		verb := "replaces a file"
		if r.File.Inode == 0 {
			verb = "creates the file"
		}
		line("", verb)
		line("sha256", r.Sum)
		line("content", strconv.QuoteToASCII(r.Head))
	}
	if r.Reason != "" {
		line("it says", strconv.QuoteToASCII(r.Reason))
	}
	if r.Problem != "" {
		line("problem", strconv.QuoteToASCII(r.Problem)+": it cannot be approved")
	}
	return b.String()
}

func wordOf(path string) string {
	if path == "" {
		return ""
	}
	return Word(path)
}
