package cmdline

import (
	"fmt"
	"slices"
	"strings"
)

// Overview returns the answer to a program's name alone: what it is, and the first things to type. All help is broken
// into lines of at most width characters.
func (p *Program) Overview(width int) string {
	w := layout(width)
	var rows []Entry
	for _, e := range p.Start {
		rows = append(rows, Entry{e.Line, e.Says})
	}
	return w.paragraphs(p.Name+": "+p.Summary) + "\n" + w.columns(rows) + "\n" +
		w.paragraphs(fmt.Sprintf("%s help lists all commands; %s COMMAND --help explains one.", p.Name, p.Name))
}

// Listing returns the help of the program itself: all its commands, by group. A program without commands has only
// its description.
func (p *Program) Listing(width int) string {
	w := layout(width)
	if len(p.Commands) == 0 {
		return fmt.Sprintf("Usage: %s\n\n%s", p.Name, w.paragraphs(p.About))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: %s COMMAND [flags] [ARG…]\n\n%s", p.Name, w.paragraphs(p.About))
	var groups []Topic
	for _, c := range p.Commands {
		name := orElse(c.Group, "Commands")
		at := slices.IndexFunc(groups, func(t Topic) bool { return t.Name == name })
		if at < 0 {
			groups, at = append(groups, Topic{Name: name}), len(groups)
		}
		groups[at].Entries = append(groups[at].Entries, Entry{c.Name, c.Summary})
	}
	if len(p.Topics) > 0 {
		topics := Topic{Name: "Topics"}
		for _, t := range p.Topics {
			topics.Entries = append(topics.Entries, Entry{t.Name, t.Summary})
		}
		groups = append(groups, topics)
	}
	for _, g := range groups {
		fmt.Fprintf(&b, "\n%s:\n%s", g.Name, w.columns(g.Entries))
	}
	fmt.Fprintf(&b, "\n%s COMMAND --help explains a command.\n", p.Name)
	return b.String()
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// Explain returns the help of a verb or a topic.
func (p *Program) Explain(name string, width int) (string, error) {
	if c := p.command(name); c != nil {
		return c.Help(width), nil
	}
	names := p.Verbs()
	for _, t := range p.Topics {
		if t.Name == name {
			return layout(width).topic(&t), nil
		}
		names = append(names, t.Name)
	}
	return "", p.unknown(name, names)
}

// Help returns the answer to --help.
func (c *Command) Help(width int) string {
	w := layout(width)
	var b strings.Builder
	first := "Usage: "
	for _, u := range c.usages() {
		b.WriteString(w.row(first, u, len(first)))
		first = strings.Repeat(" ", len(first))
	}
	b.WriteString("\n" + w.paragraphs(c.About))
	group := ""
	for _, f := range c.Table() {
		if f.Group != group {
			group = f.Group
			fmt.Fprintf(&b, "\n%s:\n", group)
		}
		b.WriteString(w.row("  "+f.spelling(), f.describe(), min(flagIndent, int(w)*35/100)))
	}
	for _, t := range c.Topics {
		fmt.Fprintf(&b, "\n%s:\n%s", strings.ToUpper(t.Section[:1])+strings.ToLower(t.Section[1:]), w.topic(&t))
	}
	if len(c.Examples) > 0 {
		b.WriteString("\nExamples:\n")
	}
	for _, e := range c.Examples {
		b.WriteString("  # " + strings.Join(wrap(e.Says, int(w)-4), "\n  # ") + "\n" + w.line(e.Line))
	}
	return b.String()
}

// usages returns each form of the command.
func (c *Command) usages() (all []string) {
	forms := c.Usage
	if len(forms) == 0 {
		forms = []string{""}
	}
	for _, u := range forms {
		all = append(all, strings.TrimRight(c.FullName()+" "+u, " "))
	}
	return all
}

// flagIndent is the column of the text in the help of a flag, unless the lines are narrow.
const flagIndent = 28

// layout is the width of lines, in characters.
type layout int

func (w layout) topic(t *Topic) string { return w.paragraphs(t.Text) + "\n" + w.columns(t.Entries) }

// columns returns rows with their texts in one column. It is as far right as the longest name needs.
func (w layout) columns(rows []Entry) string {
	indent := 0
	for _, r := range rows {
		indent = max(indent, len([]rune(r.Name))+4)
	}
	var b strings.Builder
	for _, r := range rows {
		b.WriteString(w.row("  "+r.Name, r.Text, min(indent, int(w)/2)))
	}
	return b.String()
}

// row returns head, and text from the column indent on. A head that is too long has a line of its own. One that ends with
// a space fits.
func (w layout) row(head, text string, indent int) string {
	var b strings.Builder
	if len([]rune(head)) > indent-2 && !strings.HasSuffix(head, " ") {
		b.WriteString(head + "\n")
		head = ""
	}
	for _, l := range wrap(text, int(w)-indent) {
		fmt.Fprintf(&b, "%-*s%s\n", indent, head, l)
		head = ""
	}
	return b.String()
}

// line returns an example to type. A long one is continued after a backslash, as a shell reads it.
func (w layout) line(text string) string {
	var lines []string
	line := " "
	for _, word := range shellWords(text) {
		if len([]rune(line))+len([]rune(word))+3 > int(w) && line != " " {
			lines, line = append(lines, line+` \`), "     "
		}
		line += " " + word
	}
	return strings.Join(append(lines, line), "\n") + "\n"
}

// shellWords splits text at the spaces that are not inside quotes.
func shellWords(text string) []string {
	quote := rune(0)
	return strings.FieldsFunc(text, func(r rune) bool {
		switch {
		case quote == 0 && (r == '\'' || r == '"'):
			quote = r
		case r == quote:
			quote = 0
		}
		return r == ' ' && quote == 0
	})
}

// paragraphs breaks each paragraph into lines, and keeps one empty line between them.
func (w layout) paragraphs(text string) string {
	var all []string
	for _, p := range split(text) {
		all = append(all, strings.Join(wrap(p, int(w)), "\n")+"\n")
	}
	return strings.Join(all, "\n")
}

// split returns the paragraphs of a text, each as one line.
func split(text string) (all []string) {
	for p := range strings.SplitSeq(text, "\n\n") {
		if line := strings.Join(strings.Fields(p), " "); line != "" {
			all = append(all, line)
		}
	}
	return all
}

// wrap breaks text into lines of at most width characters, at spaces only.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len([]rune(line))+1+len([]rune(word)) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
