package cli

import (
	"fmt"
	"strings"
)

// helpWidth is the width of help, in characters. A terminal has at least 80 columns.
const helpWidth = 80

// Overview returns the answer to a program's name alone: what it is, and the first things to type.
func (p *Program) Overview() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n\n", p.Name, p.Summary)
	b.WriteString(columns(starts(p.Start)))
	fmt.Fprintf(&b, "\n%s help lists all commands; %s COMMAND --help explains one.\n", p.Name, p.Name)
	return b.String()
}

func starts(all []Example) (rows []Entry) {
	for _, e := range all {
		rows = append(rows, Entry{e.Line, e.Says})
	}
	return rows
}

// Listing returns the help of the program itself: all its commands, by group. A program without commands has only
// its description.
func (p *Program) Listing() string {
	var b strings.Builder
	if len(p.Commands) == 0 {
		return fmt.Sprintf("Usage: %s\n\n%s", p.Name, paragraphs(p.About, helpWidth))
	}
	fmt.Fprintf(&b, "Usage: %s COMMAND [flags] [ARG…]\n\n%s", p.Name, paragraphs(p.About, helpWidth))
	group := "-"
	var rows []Entry
	for _, c := range p.Commands {
		if c.Group != group {
			b.WriteString(columns(rows))
			rows, group = nil, c.Group
			fmt.Fprintf(&b, "\n%s:\n", orElse(group, "Commands"))
		}
		rows = append(rows, Entry{c.Name, c.Summary})
	}
	b.WriteString(columns(rows))
	if len(p.Topics) > 0 {
		b.WriteString("\nTopics:\n")
		rows = nil
		for _, t := range p.Topics {
			rows = append(rows, Entry{t.Name, t.Summary})
		}
		b.WriteString(columns(rows))
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
func (p *Program) Explain(name string) (string, error) {
	if c := p.command(name); c != nil {
		return c.Help(), nil
	}
	names := p.Verbs()
	for _, t := range p.Topics {
		if t.Name == name {
			return t.help(), nil
		}
		names = append(names, t.Name)
	}
	return "", p.unknown(name, names)
}

func (t *Topic) help() string { return paragraphs(t.Text, helpWidth) + "\n" + columns(t.Entries) }

// Help returns the answer to --help.
func (c *Command) Help() string {
	var b strings.Builder
	b.WriteString(c.usageLines("Usage: ", "       "))
	b.WriteString("\n" + paragraphs(c.About, helpWidth))
	group := ""
	for _, f := range c.Table() {
		if f.Group != group {
			group = f.Group
			fmt.Fprintf(&b, "\n%s:\n", group)
		}
		b.WriteString(row("  "+f.spelling(), f.describe(), flagIndent))
	}
	for _, t := range c.Topics {
		fmt.Fprintf(&b, "\n%s:\n%s", strings.ToUpper(t.Section[:1])+strings.ToLower(t.Section[1:]), t.help())
	}
	if len(c.Examples) > 0 {
		b.WriteString("\nExamples:\n")
	}
	for _, e := range c.Examples {
		fmt.Fprintf(&b, "  # %s\n  %s\n", e.Says, e.Line)
	}
	return b.String()
}

// usageLines returns one line for each form of the command.
func (c *Command) usageLines(first, rest string) string {
	var b strings.Builder
	usage := c.Usage
	if len(usage) == 0 {
		usage = []string{""}
	}
	for _, u := range usage {
		b.WriteString(strings.TrimRight(first+c.FullName()+" "+u, " ") + "\n")
		first = rest
	}
	return b.String()
}

// flagIndent is the column of the text in the help of a flag.
const flagIndent = 28

// columns returns rows with their texts in one column. It is as far right as the longest name needs.
func columns(rows []Entry) string {
	indent := 0
	for _, r := range rows {
		indent = max(indent, len([]rune(r.Name))+4)
	}
	var b strings.Builder
	for _, r := range rows {
		b.WriteString(row("  "+r.Name, r.Text, min(indent, helpWidth/2)))
	}
	return b.String()
}

// row returns head, and text from the column indent on. A head that is too long has a line of its own.
func row(head, text string, indent int) string {
	var b strings.Builder
	if len([]rune(head)) > indent-2 {
		b.WriteString(head + "\n")
		head = ""
	}
	for _, l := range wrap(text, helpWidth-indent) {
		fmt.Fprintf(&b, "%-*s%s\n", indent, head, l)
		head = ""
	}
	return b.String()
}

// paragraphs breaks each paragraph into lines, and keeps one empty line between them.
func paragraphs(text string, width int) string {
	var all []string
	for _, p := range split(text) {
		all = append(all, strings.Join(wrap(p, width), "\n")+"\n")
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
