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
	// maxEntries bounds the entries of all layers, at about 200 bytes of memory each.
	maxEntries = 4_000_000
)

// place identifies an entry by its layer and its position in that layer.
type place struct{ layer, entry int }

// nowhere is the place of a directory that has children but no entry of its own.
var nowhere = place{-1, 0}

// merge finds the entries that remain visible when the layers are merged.
type merge struct {
	root   *node
	layers int // number of layers read
	total  int // number of entries in all layers

	origin map[place]place  // the file of each hard link
	names  map[place][]link // the names of each file with hard links, its own first
}

type link struct {
	name string
	at   place
}

// node is one name in the merged tree.
type node struct {
	at       place
	children map[string]*node // nil unless a directory
}

func newMerge() *merge {
	return &merge{root: newDirectory(), origin: map[place]place{}, names: map[place][]link{}}
}

func newDirectory() *node { return &node{at: nowhere, children: map[string]*node{}} }

// clean returns a name relative to the root; the root itself is "".
func clean(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }

// layer merges a layer over those below. Its whiteouts apply only to the layers below, wherever they stand in the
// archive.
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

// link records a hard link to a name in the same layer or in one below.
func (m *merge) link(above *node, l link, name string) {
	target := above.find(name)
	if target == nil || target.at == nowhere {
		target = m.root.find(name)
	}
	if target == nil || target.children != nil {
		return // a dangling link is dropped
	}
	file := target.at
	if first, ok := m.origin[file]; ok {
		file = first // the target is a link itself
	}
	m.origin[l.at] = file
	if len(m.names[file]) == 0 {
		m.names[file] = []link{{name, file}}
	}
	m.names[file] = append(m.names[file], l)
}

// first returns the first visible name of a file with hard links, or "". It removes the names before it from the
// list. Without that, an image with a million removed links to one file would take quadratic time.
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

// left reports whether a name refers to that entry in the merged tree.
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

// add adds an entry to its own layer. A later entry replaces an earlier one of the same name; a directory keeps its
// children.
func (n *node) add(name string, at place, directory bool) {
	if name != "" {
		for part := range strings.SplitSeq(name, "/") {
			if n.children == nil { // a file is replaced by a directory
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

// cover merges a layer's node over the node below. The upper entry wins. An upper directory without an entry of its
// own keeps the entry of a lower directory.
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

// find returns the node with the given name, or nil.
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
