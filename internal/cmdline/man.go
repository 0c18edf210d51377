package cmdline

import (
	"fmt"
	"strings"
)

// Manual returns the manual page of the program, and one for each verb, by file name. They belong to section 1.
func (p *Program) Manual() map[string]string {
	pages := map[string]string{p.Name + ".1": p.page()}
	for _, c := range p.Commands {
		pages[c.pageName()+".1"] = c.page()
	}
	return pages
}

// page returns the page of the program itself.
func (p *Program) page() string {
	m := newManual(p.Name, p.Summary)
	m.section("SYNOPSIS")
	m.line(".B %s\n.I COMMAND\n[flags] [ARG\\[u2026]]", roff(p.Name))
	m.section("DESCRIPTION")
	m.text(p.About)
	group := ""
	m.section("COMMANDS")
	for _, c := range p.Commands {
		if c.Group != group {
			group = c.Group
			m.line(".SS %s", roff(group))
		}
		m.line(".TP\n.BR %s (1)\n%s", roff(c.pageName()), roff(c.Summary))
	}
	m.topics(p.Topics)
	m.section("EXAMPLES")
	m.examples(p.Start)
	m.also(p.Commands)
	return m.String()
}

// page returns the manual page of the command.
func (c *Command) page() string {
	m := newManual(c.pageName(), c.Summary)
	m.section("SYNOPSIS")
	for i, u := range c.usages() {
		if i > 0 {
			m.line(".br")
		}
		m.line(".B %s\n%s", roff(c.FullName()), roff(strings.TrimSpace(strings.TrimPrefix(u, c.FullName()))))
	}
	m.section("DESCRIPTION")
	m.text(c.About)
	m.section("OPTIONS")
	group := ""
	for _, f := range c.Table() {
		if f.Group != group {
			group = f.Group
			m.line(".SS %s", roff(group))
		}
		m.line(".TP\n%s\n%s", f.roff(), lines(f.describe()))
	}
	m.topics(c.Topics)
	if len(c.Examples) > 0 {
		m.section("EXAMPLES")
		m.examples(c.Examples)
	}
	if c.Name == "" {
		m.section("SEE ALSO")
		m.line(".BR demesne (1)")
	} else {
		m.section("SEE ALSO")
		m.line(".BR %s (1)", roff(c.Program))
	}
	return m.String()
}

// pageName returns the name of the command's page. man finds the page of "demesne run" under both names.
func (c *Command) pageName() string { return strings.ReplaceAll(c.FullName(), " ", "-") }

// roff returns the flag's spelling: its names in bold, its value in italics.
func (f *Flag) roff() string {
	var names []string
	if f.Short != 0 {
		names = append(names, `\fB`+roff("-"+string(f.Short))+`\fR`)
	}
	if f.Long != "" {
		names = append(names, `\fB`+roff("--"+f.Long)+`\fR`)
	}
	s := strings.Join(names, ", ")
	switch {
	case f.Optional:
		s += `[=\fI` + roff(f.Arg) + `\fR]`
	case f.Arg != "":
		s += ` \fI` + roff(f.Arg) + `\fR`
	}
	return s
}

// manual is a page that is being written, with the macros of man(7).
type manual struct{ strings.Builder }

func newManual(name, summary string) *manual {
	m := &manual{}
	m.line(".\\\" Made by demesne help --man from the tables of its commands.")
	m.line(".TH %s 1 \"\" \"demesne %s\"", roff(strings.ToUpper(name)), Version)
	m.section("NAME")
	m.line("%s \\- %s", roff(name), roff(summary))
	return m
}

func (m *manual) line(format string, a ...any) { fmt.Fprintf(m, format+"\n", a...) }

func (m *manual) section(name string) { m.line(".SH %s", roff(name)) }

// text writes paragraphs.
func (m *manual) text(s string) {
	for i, p := range split(s) {
		if i > 0 {
			m.line(".PP")
		}
		m.line("%s", lines(p))
	}
}

func (m *manual) topics(all []Topic) {
	for _, t := range all {
		m.section(t.Section)
		m.text(t.Text)
		for _, e := range t.Entries {
			m.line(".TP\n.B %s\n%s", roff(e.Name), lines(e.Text))
		}
	}
}

func (m *manual) examples(all []Example) {
	for _, e := range all {
		m.line(".TP\n%s\n.EX\n%s\n.EE", roff(e.Says), roff(e.Line))
	}
}

// also writes the references to the verbs' pages.
func (m *manual) also(all []Command) {
	m.section("SEE ALSO")
	for i, c := range all {
		end := ","
		if i == len(all)-1 {
			end = ""
		}
		m.line(".BR %s (1)%s", roff(c.pageName()), end)
	}
}

// lines breaks text into short lines, and escapes them.
func lines(text string) string {
	all := wrap(text, 64)
	for i := range all {
		all[i] = roff(all[i])
	}
	return strings.Join(all, "\n")
}

// roff escapes text: backslashes, hyphens that are to be copied, characters outside ASCII, and a first dot, which
// would start a request.
func roff(s string) string {
	var b strings.Builder
	if strings.HasPrefix(s, ".") {
		b.WriteString(`\&`)
	}
	for _, r := range s {
		switch {
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`)
		case r == '\'':
			b.WriteString(`\(aq`)
		case r == '`':
			b.WriteString("\\(ga")
		case r == '^' || r == '~':
			b.WriteString(map[rune]string{'^': `\(ha`, '~': `\(ti`}[r])
		case r >= 0x80:
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Markdown returns the reference of all commands.
func (p *Program) Markdown() string {
	var b strings.Builder
	for _, c := range p.Commands {
		c.markdown(&b)
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

func (c *Command) markdown(b *strings.Builder) {
	fmt.Fprintf(b, "## %s\n\n```\n%s\n```\n\n", c.FullName(), strings.Join(c.usages(), "\n"))
	for _, p := range split(c.About) {
		fmt.Fprintf(b, "%s\n\n", p)
	}
	b.WriteString("| flag | |\n|---|---|\n")
	for _, f := range c.Table() {
		cell := strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(f.describe())
		fmt.Fprintf(b, "| `%s` | %s |\n", strings.TrimSpace(f.spelling()), cell)
	}
	b.WriteString("\n```sh\n")
	for _, e := range c.Examples {
		fmt.Fprintf(b, "%s  # %s\n", e.Line, e.Says)
	}
	b.WriteString("```\n\n")
}
