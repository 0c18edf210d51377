package cmdline

import (
	"fmt"
	"strings"
)

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
