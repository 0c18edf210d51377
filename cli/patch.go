package cli

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

// filePatch is what one edit changes, as a person reads it.
type filePatch struct {
	upper.Texts
	head  []string // lines before the hunks
	hunks []hunk
}

// hunk is one place of a unified diff. Its lines end with a newline.
type hunk struct {
	head     string   // @@ -1,2 +1,3 @@
	lines    []string // each with its first character
	from, to int      // of the lines of the old file that it replaces
}

// patchOf reads an edit. A file that cannot be read is part of the answer, with the reason.
func patchOf(over *upper.Over, e edit) (p filePatch) {
	var err error
	if p.Texts, err = over.Texts(e.Edit); err != nil {
		p.Unshown = err.Error()
	}
	switch {
	case p.OldMode == 0 || p.NewMode == 0:
		if mode := p.OldMode | p.NewMode; mode&0o111 != 0 && mode&unix.S_IFMT == unix.S_IFREG || mode&unix.S_IFMT == unix.S_IFLNK {
			p.head = append(p.head, fmt.Sprintf("mode %o", mode))
		}
	case p.OldMode != p.NewMode:
		p.head = append(p.head, fmt.Sprintf("old mode %o", p.OldMode), fmt.Sprintf("new mode %o", p.NewMode))
	}
	old, now := "/dev/null", "/dev/null"
	if p.OldMode != 0 {
		old = e.Path
	}
	if p.NewMode != 0 {
		now = e.Path
	}
	if p.Unshown != "" {
		p.head = append(p.head, "the content is not shown: "+p.Unshown)
		return p
	}
	if p.hunks = hunksOf(p.Old, p.New); len(p.hunks) > 0 {
		p.head = append(p.head, "--- "+text.SafeLine(old), "+++ "+text.SafeLine(now))
	}
	return p
}

// hunksOf compares two texts.
func hunksOf(old, now []byte) (hunks []hunk) {
	for _, line := range strings.SplitAfter(string(diff.Diff("", old, "", now)), "\n") {
		switch {
		case strings.HasPrefix(line, "@@ "):
			h := hunk{head: strings.TrimSuffix(line, "\n")}
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
			h.lines = append(h.lines, line)
		}
	}
	return hunks
}

// with returns the old text with some of the hunks.
func (p *filePatch) with(chosen []hunk) []byte {
	lines := bytes.SplitAfter(p.Old, []byte("\n"))
	if len(lines[len(lines)-1]) == 0 {
		lines = lines[:len(lines)-1]
	}
	out, at := []byte{}, 0
	for _, h := range chosen {
		out = append(out, bytes.Join(lines[at:h.from], nil)...)
		kept := false // the line before is one of the new text
		for _, line := range h.lines {
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

// divisible reports whether hunks of a file can be applied one by one.
func (p *filePatch) divisible() bool {
	return len(p.hunks) > 1 && p.OldMode&unix.S_IFMT == unix.S_IFREG && p.NewMode&unix.S_IFMT == unix.S_IFREG
}

// patches calls show with the contents of the edits at or below paths, sorted by path, until it returns false. all is false
// if there are more.
func (c *changeSet) patches(paths []string, show func(edit, *filePatch) bool) (all bool, err error) {
	o, err := c.open()
	if err != nil {
		return false, err
	}
	defer o.close()
	edits, all, err := o.chosen(paths)
	if err != nil {
		return false, err
	}
	slices.SortStableFunc(edits, func(a, b edit) int { return strings.Compare(a.Path, b.Path) })
	for _, e := range edits {
		p := patchOf(o.all[e.dir], e)
		if !show(e, &p) {
			return false, nil
		}
	}
	return all, nil
}
