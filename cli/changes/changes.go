// Package changes shows changes that are kept apart, and asks what to do with them.
//
// Package session/cow reads and applies such changes. This package has the lines and the questions: [List] and [PatchText] are
// what demesne diff prints, [Apply] reports what was applied, and [Ask] and [Questions] ask on the terminal. Names and texts
// come from a sandbox. They are printed without control characters, as less(1) shows them.
package changes

import (
	"fmt"
	"strings"

	"demesne/cli/app"
	"demesne/internal/text"
	"demesne/rootfs/upper"
	"demesne/session/cow"
)

// Sums returns a line for each directory with changes, and lines for the files that this machine would execute.
func Sums(c *cow.Set, edits []cow.Edit) (lines []string) {
	for _, d := range c.Dirs {
		n := map[byte]int{}
		for _, e := range edits {
			if e.Path == d.Path || strings.HasPrefix(e.Path, strings.TrimSuffix(d.Path, "/")+"/") {
				n[e.Kind]++
			}
		}
		if n['A']+n['M']+n['D'] > 0 {
			lines = append(lines, fmt.Sprintf("kept apart from %s: %d added, %d modified, %d deleted", text.SafeLine(d.Path), n['A'], n['M'], n['D']))
		}
	}
	return append(lines, review(edits)...)
}

// Apply applies changes and reports what it did. It removes changes of which nothing is left.
func Apply(a *app.App, c *cow.Set, paths []string, apply cow.Applier) (int, error) {
	did, err := c.Apply(paths, apply)
	if err != nil {
		return 0, err
	}
	for _, line := range review(did.Done) {
		a.Say("apply: " + line)
	}
	for _, r := range did.Refused {
		a.Say(fmt.Sprintf("apply: %s: %v", text.SafeLine(r.Path), r.Err))
	}
	for _, e := range did.Left {
		a.Say(fmt.Sprintf("apply: left out %s, which %s would execute", text.SafeLine(e.Path), e.By))
	}
	if len(did.Left) > 0 {
		fmt.Fprintf(a.Stderr, "hint: demesne apply %s PATH makes such a change\n", c.ID)
	}
	left, all, err := c.Edits()
	if err == nil && len(left) == 0 && all {
		err = c.Discard()
	}
	if err != nil {
		return 0, err
	}
	code, err := a.Print(fmt.Sprintf("%d applied, %d left\n", len(did.Done), len(left)))
	if len(did.Refused)+len(did.Left) > 0 && code == 0 {
		code = 1
	}
	return code, err
}

// reviewLinks bounds the links that review names.
const reviewLinks = 20

// review names the changes that the caller should look at before this machine executes, obeys or follows them.
func review(done []cow.Edit) (lines []string) {
	var files []upper.Executable
	for _, e := range done {
		if e.By != "" {
			files = append(files, upper.Executable{Path: e.Path, By: e.By, Class: e.Class, New: e.Kind == 'A'})
		}
		if e.Leads != "" {
			lines = append(lines, fmt.Sprintf("review before use: %s, a link that leads out of the directory: to %s", text.SafeLine(e.Path), text.SafeLine(e.Leads)))
		}
	}
	if more := len(lines) - reviewLinks; more > 0 {
		lines = append(lines[:reviewLinks], fmt.Sprintf("review before use: and %d more links that lead out of the directory", more))
	}
	return append(upper.Review(files), lines...)
}

// List returns one line for each change. Names come from the sandbox.
func List(edits []cow.Edit, all bool) string {
	var b strings.Builder
	for _, e := range edits {
		fmt.Fprintf(&b, "%c %s", e.Kind, text.SafeLine(e.Path))
		switch {
		case e.Guarded:
			fmt.Fprintf(&b, "  (executed by %s; apply it by its path)", e.By)
		case e.By != "":
			fmt.Fprintf(&b, "  (executed by %s)", e.By)
		}
		if e.Leads != "" {
			fmt.Fprintf(&b, "  (leads out of the directory, to %s)", text.SafeLine(e.Leads))
		}
		if e.Changed {
			b.WriteString("  (changed here meanwhile)")
		}
		if e.Special {
			b.WriteString("  (not a file: never applied)")
		}
		b.WriteByte('\n')
	}
	if !all {
		b.WriteString("… and more\n")
	}
	return b.String()
}
