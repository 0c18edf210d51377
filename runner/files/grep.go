package files

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
)

const (
	matchesMax = 100  // lines, or files, of an answer if the request sets no maximum
	shownMax   = 2000 // bytes of a line in the answer
	contextMax = 20   // lines before and after
)

// search is the state of a grep.
type search struct {
	re      *regexp.Regexp
	mode    Mode
	context int
	most    int // lines, or files
	found   *Matches
	bytes   int // of text and paths in found
}

func grep(g Grep) (*Matches, error) {
	pattern := g.Pattern
	if g.IgnoreCase {
		pattern = "(?i)" + pattern
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", g.Pattern, err)
	}
	if g.Mode != "" && !slices.Contains(Modes(), g.Mode) {
		return nil, fmt.Errorf("output mode %q: not one of %v", g.Mode, Modes())
	}
	match := func(string) bool { return true }
	if g.Glob != "" {
		if match, err = matcher(g.Glob); err != nil {
			return nil, err
		}
	}
	s := &search{re: re, mode: g.Mode, context: min(max(g.Context, 0), contextMax), most: matchesMax, found: &Matches{}}
	if g.Most > 0 {
		s.most = g.Most
	}
	if info, err := os.Stat(g.Path); err == nil && !info.IsDir() {
		return s.found, ended(s.file(g.Path))
	}
	cut, err := walk(g.Path, func(at, rel string, d fs.DirEntry) error {
		if !d.Type().IsRegular() || !match(rel) {
			return nil
		}
		err := s.file(at)
		if errors.Is(err, errEnough) {
			return err
		}
		return nil // skip unreadable files
	})
	s.found.Cut = s.found.Cut || cut
	return s.found, err
}

func ended(err error) error {
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// file searches one file. It returns errEnough when the answer is full.
func (s *search) file(path string) error {
	f, _, err := open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 64<<10)
	if binary(in) {
		s.found.Binary++
		return nil
	}
	if s.mode == Names || s.mode == Counts {
		return s.count(in, path)
	}
	return s.lines(in, path)
}

// count searches a file in the modes without lines.
func (s *search) count(in *bufio.Reader, path string) error {
	n := 0
	for n == 0 || s.mode == Counts {
		line, _, err := nextLine(in)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if s.re.MatchString(line) {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	if len(s.found.Files) == s.most || s.bytes > readMax {
		s.found.Cut = true
		return errEnough
	}
	c := Count{Path: path}
	if s.mode == Counts {
		c.Count = n
	}
	s.bytes += len(path)
	s.found.Files, s.found.Total = append(s.found.Files, c), s.found.Total+n
	return nil
}

// lines searches a file in the mode Lines. It keeps the last few lines as context before a match, and the
// number of context lines still to show after one.
func (s *search) lines(in *bufio.Reader, path string) error {
	var before []Line
	after := 0
	for n := 1; ; n++ {
		text, _, err := nextLine(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		l := Line{Path: path, Line: n, Text: short(strings.ToValidUTF8(text, "\uFFFD"), shownMax)}
		switch {
		case s.re.MatchString(text):
			if s.found.Total == s.most || s.bytes > readMax {
				s.found.Cut = true
				return errEnough
			}
			s.found.Total++
			s.show(append(before, l)...)
			before, after = before[:0], s.context
		case after > 0:
			l.Context = true
			s.show(l)
			after--
		case s.context > 0:
			l.Context = true
			if len(before) == s.context {
				before = append(before[:0], before[1:]...)
			}
			before = append(before, l)
		}
	}
}

func (s *search) show(lines ...Line) {
	for _, l := range lines {
		s.bytes += len(l.Path) + len(l.Text)
		s.found.Lines = append(s.found.Lines, l)
	}
}
