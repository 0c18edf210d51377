package main

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"demesne/cmd/internal/version"
)

const helpWidth = 90

// overview returns the help of demesne itself.
func overview() string {
	var b strings.Builder
	b.WriteString("Usage: demesne COMMAND [flags] [ARG…]\n\nRuns untrusted commands in rootless sandboxes.\n\nCommands:\n")
	for _, c := range commands() {
		fmt.Fprintf(&b, "  %-12s%s\n", c.name, c.summary)
	}
	b.WriteString("\nExamples:\n  demesne run -- sh -c 'id; echo hello > /out/greeting.txt'\n  demesne check\n")
	b.WriteString("\ndemesne COMMAND --help explains a command.\n")
	return b.String()
}

// help returns the text of demesne COMMAND --help.
func (c *command) help() string {
	var b strings.Builder
	b.WriteString(c.usageLines("Usage: ", "       "))
	fmt.Fprintf(&b, "\n%s\n", c.about)
	group := ""
	for _, f := range c.table(&options{}) {
		if f.group != group {
			group = f.group
			fmt.Fprintf(&b, "\n%s:\n", group)
		}
		b.WriteString(f.usage())
	}
	b.WriteString("\nExamples:\n")
	for _, e := range c.examples {
		fmt.Fprintf(&b, "  # %s\n  %s\n", e.says, e.line)
	}
	return b.String()
}

func (c *command) usageLines(first, rest string) string {
	var b strings.Builder
	usage := c.usage
	if len(usage) == 0 {
		usage = []string{""}
	}
	for _, u := range usage {
		b.WriteString(strings.TrimRight(first+"demesne "+c.name+" "+u, " ") + "\n")
		first = rest
	}
	return b.String()
}

// usage returns the flag's lines in --help.
func (f *flagDef) usage() string {
	const indent = 28
	head := "  " + f.spelling()
	lines := wrap(f.describe(), helpWidth-indent)
	var b strings.Builder
	if len(head) > indent-2 {
		b.WriteString(head + "\n")
		head = ""
	}
	for _, l := range lines {
		fmt.Fprintf(&b, "%-*s%s\n", indent, head, l)
		head = ""
	}
	return b.String()
}

// spelling returns every way to write the flag: "-t, --tty", "--json[=FILE]".
func (f *flagDef) spelling() string {
	s := "    "
	if f.short != 0 {
		s = "-" + string(f.short)
		if f.long != "" {
			s += ", "
		}
	}
	if f.long != "" {
		s += "--" + f.long
	}
	switch {
	case f.optional:
		s += "[=" + f.arg + "]"
	case f.arg != "":
		s += " " + f.arg
	}
	return s
}

func (f *flagDef) describe() string {
	if f.repeat {
		return f.help + "; repeatable"
	}
	return f.help
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

// markdown returns the reference of all commands.
func markdown() string {
	var b strings.Builder
	for _, c := range commands() {
		fmt.Fprintf(&b, "## demesne %s\n\n", c.name)
		fmt.Fprintf(&b, "```\n%s```\n\n%s\n\n", c.usageLines("", ""), c.about)
		b.WriteString("| flag | |\n|---|---|\n")
		for _, f := range c.table(&options{}) {
			cell := strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(f.describe())
			fmt.Fprintf(&b, "| `%s` | %s |\n", strings.TrimSpace(f.spelling()), cell)
		}
		b.WriteString("\n```sh\n")
		for _, e := range c.examples {
			fmt.Fprintf(&b, "%s  # %s\n", e.line, e.says)
		}
		b.WriteString("```\n\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

func cmdHelp(a *app, o *options, args []string) (int, error) {
	switch {
	case len(args) > 1:
		return 0, errors.New("more than one command given")
	case o.markdown:
		return a.print(markdown())
	case len(args) == 0:
		return a.print(overview())
	}
	c, err := lookup(args[0])
	if err != nil {
		return 0, err
	}
	return a.print(c.help())
}

func cmdVersion(a *app, _ *options, args []string) (int, error) {
	if len(args) > 0 {
		return 0, fmt.Errorf("unexpected argument %q", args[0])
	}
	return a.print(fmt.Sprintf("demesne %s (%s, %s/%s)\n", version.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH))
}

// print writes an answer to stdout.
func (a *app) print(s string) (int, error) {
	if _, err := a.stdout.WriteString(s); err != nil {
		return 0, fmt.Errorf("write stdout: %w", err)
	}
	return 0, nil
}
