package cow

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"golang.org/x/sys/unix"

	"demesne/internal/text"
	"demesne/rootfs/upper"
)

// Patch shows a person what one edit changes.
type Patch struct {
	upper.Texts
	Head  []string // lines before the hunks
	Hunks []Hunk
}

// Hunk is one place of a unified diff. Its lines end with a newline.
type Hunk struct {
	Head     string   // @@ -1,2 +1,3 @@
	Lines    []string // each with its first character
	from, to int      // of the lines of the old file that it replaces
}

// PatchOf reads an edit. A file that cannot be read is part of the answer, with the reason.
func PatchOf(over *upper.Over, e Edit) (p Patch) {
	var err error
	if p.Texts, err = over.Texts(e.Edit); err != nil {
		p.Unshown = err.Error()
	}
	switch {
	case p.OldMode == 0 || p.NewMode == 0:
		if mode := p.OldMode | p.NewMode; mode&0o111 != 0 && mode&unix.S_IFMT == unix.S_IFREG || mode&unix.S_IFMT == unix.S_IFLNK {
			p.Head = append(p.Head, fmt.Sprintf("mode %o", mode))
		}
	case p.OldMode != p.NewMode:
		p.Head = append(p.Head, fmt.Sprintf("old mode %o", p.OldMode), fmt.Sprintf("new mode %o", p.NewMode))
	}
	old, now := "/dev/null", "/dev/null"
	if p.OldMode != 0 {
		old = e.Path
	}
	if p.NewMode != 0 {
		now = e.Path
	}
	if p.Unshown != "" {
		p.Head = append(p.Head, "the content is not shown: "+p.Unshown)
		return p
	}
	if p.Hunks = hunksOf(p.Old, p.New); len(p.Hunks) > 0 {
		p.Head = append(p.Head, "--- "+text.SafeLine(old), "+++ "+text.SafeLine(now))
	}
	return p
}

// hunksOf compares two texts.
func hunksOf(old, now []byte) (hunks []Hunk) {
	for _, line := range strings.SplitAfter(string(diff.Diff("", old, "", now)), "\n") {
		switch {
		case strings.HasPrefix(line, "@@ "):
			h := Hunk{Head: strings.TrimSuffix(line, "\n")}
			from, count, _ := strings.Cut(strings.TrimPrefix(strings.Fields(line)[1], "-"), ",")
			h.from, _ = strconv.Atoi(from)
			n, _ := strconv.Atoi(count)
			if n > 0 {
				h.from-- // the first line has number 1
			}
			h.to = h.from + n
			hunks = append(hunks, h)
		case line != "" && len(hunks) > 0:
			h := &hunks[len(hunks)-1]
			h.Lines = append(h.Lines, line)
		}
	}
	return hunks
}

// With returns the old text with some of the hunks.
func (p *Patch) With(chosen []Hunk) []byte {
	lines := bytes.SplitAfter(p.Old, []byte("\n"))
	if len(lines[len(lines)-1]) == 0 {
		lines = lines[:len(lines)-1]
	}
	out, at := []byte{}, 0
	for _, h := range chosen {
		out = append(out, bytes.Join(lines[at:h.from], nil)...)
		kept := false // the line before is one of the new text
		for _, line := range h.Lines {
			switch line[0] {
			case '\\': // no newline at the end of the line before
				if kept {
					out = bytes.TrimSuffix(out, []byte("\n"))
				}
				continue
			case '-':
				kept = false
				continue
			}
			kept = true
			out = append(out, line[1:]...)
		}
		at = h.to
	}
	return append(out, bytes.Join(lines[at:], nil)...)
}

// Divisible reports whether hunks of a file can be applied one by one.
func (p *Patch) Divisible() bool {
	return len(p.Hunks) > 1 && p.OldMode&unix.S_IFMT == unix.S_IFREG && p.NewMode&unix.S_IFMT == unix.S_IFREG
}

// Patches calls show with the contents of the edits at or below paths, sorted by path, until it returns false. all is false
// if there are more.
func (c *Set) Patches(paths []string, show func(Edit, *Patch) bool) (all bool, err error) {
	o, err := c.open()
	if err != nil {
		return false, err
	}
	defer o.close()
	edits, all, err := o.chosen(paths)
	if err != nil {
		return false, err
	}
	slices.SortStableFunc(edits, func(a, b Edit) int { return strings.Compare(a.Path, b.Path) })
	for _, e := range edits {
		p := PatchOf(o.all[e.dir], e)
		if !show(e, &p) {
			return false, nil
		}
	}
	return all, nil
}
