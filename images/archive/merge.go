package archive

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
	// maxEntries bounds what is remembered of all layers, some 200 bytes an entry.
	maxEntries = 4_000_000
)

// place is where an entry is: in which layer, and how many came before it there.
type place struct{ layer, entry int }

// nowhere is a directory that no entry is for, only for what is in it.
var nowhere = place{-1, 0}

// merge finds which entries of which layers are left.
type merge struct {
	root   *node
	layers int // that were read
	total  int // entries of all of them

	origin map[place]place  // of each hard link, the file
	names  map[place][]link // of each file with hard links, its name and theirs
}

type link struct {
	name string
	at   place
}

// node is one name.
type node struct {
	at       place
	children map[string]*node // nil unless a directory
}

func newMerge() *merge {
	return &merge{root: newDirectory(), origin: map[place]place{}, names: map[place][]link{}}
}

func newDirectory() *node { return &node{at: nowhere, children: map[string]*node{}} }

// clean returns a name relative to the root: "" for the root itself.
func clean(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }

// layer lays a layer over those below. Its whiteouts are about those alone, wherever in the archive
// they are.
func (m *merge) layer(r *tar.Reader) error {
	above := newDirectory()
	var gone, emptied []string
	for entry := 0; ; entry++ {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if m.total++; m.total > maxEntries {
			return fmt.Errorf("more than %d entries", maxEntries)
		}
		name := clean(h.Name)
		dir, base := path.Split(name)
		switch {
		case base == opaque:
			emptied = append(emptied, clean(dir))
		case strings.HasPrefix(base, whiteout):
			gone = append(gone, dir+strings.TrimPrefix(base, whiteout))
		default:
			at := place{m.layers, entry}
			if h.Typeflag == tar.TypeLink {
				m.link(above, link{name, at}, clean(h.Linkname))
			}
			above.add(name, at, h.Typeflag == tar.TypeDir)
		}
	}
	m.empty(emptied)
	m.remove(gone)
	m.root.cover(above)
	m.layers++
	return nil
}

// link remembers a hard link to a name, which is in the same layer or in one below.
func (m *merge) link(above *node, l link, name string) {
	target := above.find(name)
	if target == nil || target.at == nowhere {
		target = m.root.find(name)
	}
	if target == nil || target.children != nil {
		return // it leads nowhere, and is left out
	}
	file := target.at
	if first, ok := m.origin[file]; ok {
		file = first // a link to a link
	}
	m.origin[l.at] = file
	if len(m.names[file]) == 0 {
		m.names[file] = []link{{name, file}}
	}
	m.names[file] = append(m.names[file], l)
}

// first returns the first name that a file with hard links has in the end, or "". It forgets those before it: an image may
// have a million, all gone, and each asks.
func (m *merge) first(file place) string {
	links := m.names[file]
	for len(links) > 0 {
		if m.left(links[0].name, links[0].at) {
			return links[0].name
		}
		links = links[1:]
		m.names[file] = links
	}
	return ""
}

// left says whether a name stands for that entry in the end.
func (m *merge) left(name string, at place) bool {
	n := m.root.find(name)
	return n != nil && n.at == at
}

func (m *merge) empty(names []string) {
	for _, name := range names {
		if n := m.root.find(name); n != nil && n.children != nil {
			clear(n.children)
		}
	}
}

func (m *merge) remove(names []string) {
	for _, name := range names {
		dir, base := path.Split(name)
		if parent := m.root.find(clean(dir)); parent != nil {
			delete(parent.children, base)
		}
	}
}

// add puts an entry into its own layer. The last one of a name counts; a directory keeps what is in it.
func (n *node) add(name string, at place, directory bool) {
	if name != "" {
		for part := range strings.SplitSeq(name, "/") {
			if n.children == nil { // what was a file is a directory after all
				n.at, n.children = nowhere, map[string]*node{}
			}
			next := n.children[part]
			if next == nil {
				next = &node{at: nowhere}
				n.children[part] = next
			}
			n = next
		}
	}
	n.at = at
	switch {
	case !directory:
		n.children = nil
	case n.children == nil:
		n.children = map[string]*node{}
	}
}

// cover lays a layer's directory, or file, over what is below. The upper entry counts, but a directory
// without one leaves the lower one, if that is a directory too.
func (n *node) cover(above *node) {
	if above.at != nowhere || n.children == nil {
		n.at = above.at
	}
	if above.children == nil || n.children == nil {
		n.children = above.children
		return
	}
	for name, child := range above.children {
		if old := n.children[name]; old != nil {
			old.cover(child)
		} else {
			n.children[name] = child
		}
	}
}

// find returns the node of a name, or nil.
func (n *node) find(name string) *node {
	if name == "" {
		return n
	}
	for part := range strings.SplitSeq(name, "/") {
		if n = n.children[part]; n == nil {
			return nil
		}
	}
	return n
}
