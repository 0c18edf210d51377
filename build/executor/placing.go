package executor

import (
	"archive/tar"
	"cmp"
	"fmt"
	"io"
	"maps"
	"path"
	"strings"

	"github.com/moby/patternmatcher"

	"demesne/build/containerfile"
	"demesne/runner/tarball"
)

// placing gives the files of sources their names below the destination.
type placing struct {
	parents bool
	pivots  [][]string // with parents: the words before /./ in the sources
	exclude *patternmatcher.PatternMatcher
	chmod   chmod
}

func newPlacing(c *containerfile.Copy) (p *placing, err error) {
	p = &placing{parents: c.Parents}
	for _, s := range c.Sources {
		if before, _, ok := strings.Cut(s, "/./"); ok && c.Parents {
			p.pivots = append(p.pivots, strings.Split(strings.TrimPrefix(path.Clean(before), "/"), "/"))
		}
	}
	if len(c.Exclude) > 0 {
		if p.exclude, err = patternmatcher.New(c.Exclude); err != nil {
			return nil, fmt.Errorf("--exclude: %w", err)
		}
	}
	p.chmod, err = parseChmod(c.Chmod)
	return p, err
}

// rename returns a member's name below the destination; ".": it is the destination; "": it is excluded.
func (p *placing) rename(m member) string {
	rel := strings.TrimPrefix(strings.TrimPrefix(m.Name, m.source), "/")
	if m.source == "." {
		rel = m.Name
	}
	if m.single {
		rel = path.Base(m.Name)
	}
	if p.exclude != nil && rel != "" && rel != "." {
		if out, err := p.exclude.MatchesOrParentMatches(rel); err == nil && out {
			return ""
		}
	}
	if p.parents {
		rel = p.pivoted(m)
	}
	return cmp.Or(rel, ".")
}

// pivoted returns a member's name with its parents, but without those before /./ in its source.
func (p *placing) pivoted(m member) string {
	words := strings.Split(m.Name, "/")
	for _, pivot := range p.pivots {
		if n := len(pivot); n <= len(words) {
			if ok, err := path.Match(strings.Join(pivot, "/"), strings.Join(words[:n], "/")); ok && err == nil {
				return strings.Join(words[n:], "/")
			}
		}
	}
	return m.Name
}

// forward writes one member under its new name.
func forward(w *tar.Writer, m member, p *placing, content io.Reader) error {
	as := p.rename(m)
	if as == "" {
		return nil
	}
	h := *m.Header
	h.Name, h.Format, h.Mode = as, tar.FormatPAX, p.chmod.mode(h.Mode, h.Typeflag == tar.TypeDir)
	h.PAXRecords = maps.Clone(h.PAXRecords)
	delete(h.PAXRecords, tarball.BaseRecord)
	if m.single {
		if h.PAXRecords == nil {
			h.PAXRecords = map[string]string{}
		}
		h.PAXRecords[tarball.FileRecord] = "1"
	}
	if h.Typeflag == tar.TypeLink {
		first := m
		first.Header = &tar.Header{Name: h.Linkname}
		if h.Linkname = p.rename(first); h.Linkname == "" {
			return fmt.Errorf("%q is a link to %q, which is excluded", m.Name, first.Name)
		}
	}
	if err := w.WriteHeader(&h); err != nil {
		return err
	}
	_, err := io.Copy(w, content)
	return err
}
