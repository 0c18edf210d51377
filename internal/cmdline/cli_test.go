package cmdline

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"demesne/internal/text"
)

// given is what the flags of sample set.
type given struct {
	on, tty bool
	text    string
	list    []string
	json    string
}

func sample(g *given, operand kind) *Command {
	return &Command{Program: "prog", Name: "verb", Usage: []string{"[flags] ID"}, Summary: "do a thing", About: "Does it.\n\n'Quoted', \\back and ~/.x-y: …",
		Operand: operand, Examples: []Example{{Says: "do it", Line: "prog verb --text 'a b' | wc -l"}},
		Flags: Flags{
			{Group: "A", Long: "on", Short: 'o', Set: On(&g.on), Help: "switch it on"},
			{Group: "A", Long: "tty", Short: 't', Set: On(&g.tty), Help: "use a terminal"},
			{Group: "A", Short: 'c', Arg: "TEXT", Set: Text(&g.text), Help: "take a text"},
			{Group: "B", Long: "list", Arg: "NAME[=VALUE]", Repeat: true, Hide: true, Help: "add to the list",
				Set: List(&g.list, func(s string) error {
					if strings.HasPrefix(s, "bad") {
						return errors.New("bad")
					}
					return nil
				})},
			{Group: "B", Long: "json", Arg: "FILE", Optional: true, Set: func(s string) error { g.json = "=" + s; return nil }, Help: "print JSON"},
		}}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		operand kind
		line    string
		rest    string
		want    given
		wrong   string
	}{
		{anything, "a -ot b --list x --list=y", "a b", given{on: true, tty: true, list: []string{"x", "y"}}, ""},
		{anything, "--json a --json=f", "a", given{json: "=f"}, ""},
		{anything, "-ctext -- -o", "-o", given{text: "text"}, ""},
		{anything, "-oc text -", "-", given{on: true, text: "text"}, ""},
		{Argv, "-o ls -t", "ls -t", given{on: true}, ""},
		{Argv, "-o -- -t", "-t", given{on: true}, ""},
		{Sandbox, "id -o ls -t", "id ls -t", given{on: true}, ""},
		{Sandbox, "id -- ls", "id ls", given{}, ""},
		{anything, "--lits x", "", given{}, "flag --lits: unknown"},
		{anything, "-x", "", given{}, "flag -x: unknown"},
		{anything, "-hx", "", given{}, "flag -x: unknown"},
		{anything, "-help", "", given{}, "flag -help: unknown"},
		{anything, "-host=x", "", given{}, "flag -s: unknown"},
		{anything, "-text=x", "", given{}, "flag -e: unknown"},
		{anything, "-list=x", "", given{}, "flag -list: unknown"},
		{anything, "-ch", "", given{text: "h"}, ""},
		{anything, "--on=yes", "", given{on: false}, "flag --on: takes no value"},
		{anything, "--list", "", given{}, "flag --list: needs a value (NAME[=VALUE])"},
		{anything, "-c", "", given{}, "flag -c: needs a value (TEXT)"},
		{anything, "--list bad=secret", "", given{}, `list "bad=…": bad`},
		{anything, "a --help --nosuch", "", given{}, ErrHelp.Error()},
		{anything, "-h", "", given{}, ErrHelp.Error()},
	} {
		var g given
		rest, err := sample(&g, c.operand).Parse(strings.Fields(c.line))
		if c.wrong != "" {
			if err == nil || err.Error() != c.wrong {
				t.Errorf("%q: %v, want %q", c.line, err, c.wrong)
			}
			continue
		}
		if err != nil || strings.Join(rest, " ") != c.rest || g.on != c.want.on || g.tty != c.want.tty || g.text != c.want.text || g.json != c.want.json || !slices.Equal(g.list, c.want.list) {
			t.Errorf("%q: %q, %+v, %v", c.line, rest, g, err)
		}
	}
	raw := Command{Raw: true, Name: "verb"}
	if rest, err := raw.Parse([]string{"--nosuch", "-h"}); err != nil || len(rest) != 2 {
		t.Errorf("raw: %q, %v", rest, err)
	}
	if _, err := raw.Parse([]string{"-h"}); !errors.Is(err, ErrHelp) {
		t.Errorf("raw: %v", err)
	}
	if _, err := (&Command{}).Parse([]string{"--version"}); !errors.Is(err, ErrVersion) {
		t.Errorf("--version: %v", err)
	}
}

func TestHints(t *testing.T) {
	p := &Program{Name: "prog", Commands: []Command{{Name: "create"}}, Topics: []Topic{{Name: "environment", Section: "ENVIRONMENT"}}}
	_, verb := p.Find("craete")
	_, far := p.Find("x")
	_, topic := p.Explain("enviroment", 80)
	_, notVerb := p.Find("enviroment")
	_, flag := sample(&given{}, anything).Parse([]string{"--lits"})
	for err, want := range map[error]string{
		verb: "did you mean create?", far: "prog help lists the commands", topic: "did you mean environment?",
		notVerb: "prog help lists the commands", flag: "did you mean --list?", OneOf("oen", []string{"one"}): "did you mean one?",
		errors.New("x"): "",
	} {
		if got := text.HintOf(err); got != want {
			t.Errorf("%v: hint %q, want %q", err, got, want)
		}
	}
	var unknown *UnknownError
	if !errors.As(verb, &unknown) || unknown.Name != "craete" {
		t.Errorf("%v", verb)
	}
}

// TestHelp checks the shape of all answers, at most 80 characters wide.
func TestHelp(t *testing.T) {
	p := &Program{Name: "prog", Summary: "do things", About: strings.Repeat("Does many things. ", 20),
		Start: []Example{{Line: "prog verb", Says: "do it"}}, Commands: []Command{*sample(&given{}, anything)},
		Topics: []Topic{{Name: "codes", Section: "CODES", Summary: "the codes", Text: "All:", Entries: []Entry{{Name: "0", Text: "good"}}}}}
	help, err := p.Explain("verb", 80)
	if err != nil {
		t.Fatal(err)
	}
	codes, _ := p.Explain("codes", 80)
	version, _ := p.Answer([]string{"--version"})
	listing, _ := p.Answer([]string{"--help"})
	bare := (&Program{Name: "bare", About: "Serves others."}).Listing(80)
	if bare != "Usage: bare\n\nServes others.\n" {
		t.Errorf("a program without commands: %q", bare)
	}
	for text, wants := range map[string][]string{
		help:           {"Usage: prog verb [flags] ID\n", "\nA:\n  -o, --on  ", "      --list NAME[=VALUE]   add to the list; repeatable\n", "\nGeneral:\n  -h, --help  ", "\nExamples:\n  # do it\n"},
		codes:          {"All:\n\n  0 ", "good\n"},
		version:        {"prog " + Version + " ("},
		listing:        {"Usage: prog COMMAND", "\nCommands:\n  verb  do a thing\n", "\nTopics:\n  codes  the codes\n"},
		p.Overview(80): {"prog: do things\n", "  prog verb  do it\n", "prog help lists all commands"},
	} {
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
		for line := range strings.Lines(text) {
			if len([]rune(line)) > 81 {
				t.Errorf("wide: %q", line)
			}
		}
	}
	for _, args := range [][]string{nil, {"verb"}, {"verb", "--help"}, {"--help", "x"}} {
		if _, ok := p.Answer(args); ok {
			t.Errorf("%v is answered", args)
		}
	}
}

// TestManual checks that the manual page has the text of the help, and that no text becomes a request.
func TestManual(t *testing.T) {
	p := &Program{Name: "prog", Commands: []Command{*sample(&given{}, anything)}}
	page, ok := p.Manual()["prog-verb.1"]
	if !ok {
		t.Error("no page of the verb")
	}
	for _, want := range []string{
		".TH PROG\\-VERB 1 ", "\nprog\\-verb \\- do a thing\n", "\n.B prog verb\n[flags] ID\n",
		"\n\\(aqQuoted\\(aq, \\eback and \\(ti/.x\\-y: \\[u2026]\n", "\n.SS A\n.TP\n\\fB\\-o\\fR, \\fB\\-\\-on\\fR\nswitch it on\n",
		"\\fB\\-\\-list\\fR \\fINAME[=VALUE]\\fR\nadd to the list; repeatable\n", "\\fB\\-\\-json\\fR[=\\fIFILE\\fR]\n",
		"\n.EX\nprog verb \\-\\-text \\(aqa b\\(aq | wc \\-l\n.EE\n", "\n.BR prog (1)\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	if got := roff(".x"); got != `\&.x` {
		t.Error(got)
	}
}

func TestTerminalOf(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	on := TerminalOf(w, func(string) (string, bool) { return "", false })
	if on != (Terminal{}) || on.Red("x") != "x" {
		t.Errorf("a pipe: %+v", on)
	}
	if got := (Terminal{Color: true}).Red("x"); got != "\x1b[31mx\x1b[0m" {
		t.Errorf("%q", got)
	}
}

// TestHelpWidth checks that help fits a terminal, and that its examples stay lines to type.
func TestHelpWidth(t *testing.T) {
	c := sample(&given{}, anything)
	c.Examples = append(c.Examples, Example{Says: strings.Repeat("many words ", 10), Line: "prog verb --text 'a text with many blanks in it' --list a=b --list c=d | sort -u > file"})
	p := &Program{Name: "prog", About: strings.Repeat("Does many things. ", 20), Commands: []Command{*c}}
	for _, width := range []int{40, 60, 80, 100} {
		for _, text := range []string{c.Help(width), p.Listing(width), p.Overview(width)} {
			for line := range strings.Lines(text) {
				if n := len([]rune(strings.TrimRight(line, "\n"))); n > width && !strings.Contains(line, "'a text") {
					t.Errorf("%d characters of %d: %q", n, width, line)
				}
			}
		}
	}
	if want := "  prog verb --text \\\n      'a text with many blanks in it' \\\n      --list a=b --list c=d | sort -u > \\\n      file\n"; !strings.HasSuffix(c.Help(44), want) {
		t.Errorf("no %q in\n%s", want, c.Help(44))
	}
}

// TestTable checks that no group appears twice, and that the general flags are last.
func TestTable(t *testing.T) {
	c := &Command{Flags: Flags{{Group: GroupGeneral, Long: "a"}, {Group: "B", Long: "b"}, {Group: "C", Long: "c"}, {Group: "B", Long: "d"}}}
	var all []string
	for _, f := range c.Table() {
		all = append(all, f.Group+" "+f.Long)
	}
	if got, want := strings.Join(all, ", "), "B b, B d, C c, General a, General help, General version"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestTerminalWidth(t *testing.T) {
	for columns, want := range map[int]int{0: 80, 20: 40, 60: 60, 80: 80, 200: 100} {
		if got := (Terminal{columns: columns}).Width(); got != want {
			t.Errorf("%d columns: %d, want %d", columns, got, want)
		}
	}
}
