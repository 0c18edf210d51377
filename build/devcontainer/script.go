package devcontainer

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

// stages are the hooks that are executed, in this order. All but the last belong to the making of a sandbox.
var stages = []string{"onCreateCommand", "updateContentCommand", "postCreateCommand", "postStartCommand"}

// addHooks adds the hooks of a part. In each stage the hooks of the image come first.
func (p *Plan) addHooks(f *File) {
	for _, stage := range stages {
		h := f.hooks[stage]
		for i, c := range h {
			c = command{c.name, p.values.shell(c.shell), slices.Clone(c.argv)}
			for j := range c.argv {
				c.argv[j] = p.values.shell(c.argv[j])
			}
			if c.name == "" && len(h) > 1 {
				c.name = fmt.Sprint(i + 1)
			}
			p.hooks[stage] = append(p.hooks[stage], c)
		}
		if len(h) > 0 {
			p.hooks[stage] = append(p.hooks[stage], command{}) // ends a group of commands that run in parallel
		}
	}
}

//go:embed hooks.sh
var functions string

// Wrap returns the command that executes the hooks before argv. With keep, the sandbox remembers which are done: those
// that make it are executed once, and postStartCommand once for each start.
func (p *Plan) Wrap(argv []string, keep bool) []string {
	if !p.Hooks() && !p.AsRoot {
		return argv
	}
	var s strings.Builder
	s.WriteString(functions)
	if p.AsRoot && !slices.ContainsFunc(p.Env, func(e string) bool { return strings.HasPrefix(e, "HOME=") }) {
		name, _, _ := strings.Cut(p.User, ":")
		fmt.Fprintf(&s, "home %s\n", quoted(name))
	}
	fmt.Fprintf(&s, "workspace=%s\n", quoted(p.Dir))
	if keep {
		s.WriteString("keep\n")
	}
	for _, stage := range stages {
		if len(p.hooks[stage]) == 0 {
			continue
		}
		mark := ""
		if stage == "postStartCommand" {
			mark = `-"$began"`
		}
		fmt.Fprintf(&s, "if begin %s%s; then\n", stage, mark)
		for _, c := range p.hooks[stage] {
			s.WriteString(c.line(stage))
		}
		s.WriteString("done_\nfi\n")
	}
	s.WriteString("release\nexec \"$@\"\n")
	return append([]string{"/bin/sh", "-c", s.String(), "devcontainer"}, argv...)
}

// line returns the line of the script that starts the command, or that waits for the ones before.
func (c command) line(stage string) string {
	words := []string{"/bin/sh", "-c", c.shell}
	switch {
	case c.empty():
		return "await\n"
	case c.argv != nil:
		words = c.argv
	}
	line := "start " + label(stage, c.name)
	for _, w := range words {
		line += " " + quoted(w)
	}
	return line + "\n"
}

// label names a command in the script's message of a failure.
func label(stage, name string) string {
	if name == "" {
		return stage
	}
	return stage + ":" + strings.Map(func(r rune) rune {
		if r < 0x80 && (r == '-' || r == '.' || '0' <= r && r <= '9' || 'a' <= r|0x20 && r|0x20 <= 'z') {
			return r
		}
		return '_'
	}, name)
}

func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
