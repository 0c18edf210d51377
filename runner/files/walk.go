package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	listedMax  = 1000    // entries of a list
	globbedMax = 100     // files of a glob
	visitedMax = 500_000 // entries that a walk visits
	deepest    = 32      // levels of a list
)

// errEnough ends a walk whose answer is full; errFull ends a walk that has visited too many entries.
var (
	errEnough = errors.New("enough")
	errFull   = errors.New("full")
)

// apart lists the trees that a walk skips unless it starts in one: kernel file systems and devices.
var apart = []string{"/proc", "/sys", "/dev"}

// walk calls f for everything below root, with the whole path and the path relative to root. It resolves links
// in root but follows no links below it. It skips unreadable entries, and .git, which has a copy of everything.
// cut reports that the walk is incomplete.
func walk(root string, f func(path, rel string, d fs.DirEntry) error) (cut bool, err error) {
	root, err = filepath.EvalSymlinks(filepath.Clean(root))
	if err != nil {
		return false, err
	}
	visited := 0
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if visited++; visited > visitedMax {
			return errFull
		}
		switch {
		case err != nil && path == root:
			return err
		case err != nil:
			return nil
		case path == root && d.IsDir():
			return nil
		case d.IsDir() && (slices.Contains(apart, path) || d.Name() == ".git"):
			return filepath.SkipDir
		}
		return f(path, below(root, path), d)
	})
	if errors.Is(err, errFull) || errors.Is(err, errEnough) {
		return true, nil
	}
	return false, err
}

func list(l List) (*Entries, error) {
	root := filepath.Clean(l.Path)
	if info, err := os.Stat(root); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return nil, fmt.Errorf("%s: is not a directory", l.Path)
	}
	depth := min(max(l.Depth, 1), deepest)
	e := &Entries{Entries: []Entry{}}
	var err error
	e.Cut, err = descend(root, depth, e)
	return e, err
}

// descend lists dir, each directory before its entries.
func descend(dir string, depth int, to *Entries) (cut bool, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	for _, d := range entries {
		if len(to.Entries) == listedMax {
			return true, nil
		}
		at := filepath.Join(dir, d.Name())
		info, err := d.Info()
		if err != nil {
			continue // it no longer exists
		}
		to.Entries = append(to.Entries, entry(at, info))
		if depth > 1 && d.IsDir() {
			if c, err := descend(at, depth-1, to); err == nil && c {
				return true, nil
			}
		}
	}
	return false, nil
}

func entry(at string, info fs.FileInfo) Entry {
	e := Entry{Path: at, Type: "other", Size: info.Size(), Mode: info.Mode().String(), Modified: info.ModTime().Unix()}
	switch {
	case info.Mode().IsRegular():
		e.Type = "file"
	case info.IsDir():
		e.Type = "directory"
	case info.Mode()&fs.ModeSymlink != 0:
		e.Type = "link"
		e.Target, _ = os.Readlink(at)
	}
	return e
}

// glob returns the matching files, newest first.
func glob(g Glob) (*Entries, error) {
	match, err := matcher(g.Pattern)
	if err != nil {
		return nil, err
	}
	type found struct {
		path string
		info fs.FileInfo
	}
	var all []found
	cut, err := walk(g.Path, func(at, rel string, d fs.DirEntry) error {
		if d.IsDir() || !match(rel) {
			return nil
		}
		if info, err := d.Info(); err == nil {
			all = append(all, found{at, info})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, func(a, b found) int { return b.info.ModTime().Compare(a.info.ModTime()) })
	e := &Entries{Entries: []Entry{}, Cut: cut || len(all) > globbedMax}
	for _, f := range all[:min(len(all), globbedMax)] {
		e.Entries = append(e.Entries, entry(f.path, f.info))
	}
	return e, nil
}

// below returns the path of at relative to root, or at if no such path exists.
func below(root, at string) string {
	rel, err := filepath.Rel(root, at)
	if err != nil {
		return at
	}
	return rel
}

// matcher compiles a pattern for paths relative to the root of a walk. It strips the leading slash of an
// absolute pattern, because paths relative to / have no such slash.
func matcher(pattern string) (func(string) bool, error) {
	re, err := regexp.Compile(translate(strings.TrimPrefix(pattern, "/")))
	if err != nil {
		return nil, fmt.Errorf("pattern %q: not a glob", pattern)
	}
	if strings.Contains(pattern, "/") {
		return re.MatchString, nil
	}
	return func(s string) bool { return re.MatchString(path.Base(s)) }, nil
}

// translate turns a glob into a regular expression. It leaves unbalanced groups for the compiler to refuse.
func translate(glob string) string {
	var b strings.Builder
	b.WriteString(`^(?s:`)
	depth := 0
	for i := 0; i < len(glob); i++ {
		switch c := glob[i]; {
		case strings.HasPrefix(glob[i:], "**/"):
			b.WriteString(`(?:.*/)?`)
			i += 2
		case strings.HasPrefix(glob[i:], "**"):
			b.WriteString(`.*`)
			i++
		case c == '*':
			b.WriteString(`[^/]*`)
		case c == '?':
			b.WriteString(`[^/]`)
		case c == '[':
			end := class(glob[i:])
			if end == 0 {
				b.WriteString(`\[`)
				break
			}
			b.WriteString(bracket(glob[i+1 : i+end]))
			i += end
		case c == '{':
			b.WriteString(`(?:`)
			depth++
		case c == '}' && depth > 0:
			b.WriteString(`)`)
			depth--
		case c == ',' && depth > 0:
			b.WriteString(`|`)
		case c == '\\' && i+1 < len(glob):
			i++
			b.WriteString(regexp.QuoteMeta(glob[i : i+1]))
		default:
			b.WriteString(regexp.QuoteMeta(glob[i : i+1]))
		}
	}
	b.WriteString(`)$`)
	return b.String()
}

// class returns the index of the ] that ends the class at the start of s, or 0 without one. A ] in first
// position is a member.
func class(s string) int {
	from := 1
	if strings.HasPrefix(s[from:], "!") || strings.HasPrefix(s[from:], "^") {
		from++
	}
	if strings.HasPrefix(s[from:], "]") {
		from++
	}
	if end := strings.IndexByte(s[from:], ']'); end >= 0 {
		return from + end
	}
	return 0
}

// bracket returns the class in regular expression syntax; ranges keep their meaning.
func bracket(members string) string {
	negated := ""
	if strings.HasPrefix(members, "!") || strings.HasPrefix(members, "^") {
		negated, members = "^", members[1:]
	}
	quoted := strings.NewReplacer(`\`, `\\`, `[`, `\[`, `]`, `\]`, `^`, `\^`, `&`, `\&`, `~`, `\~`).Replace(members)
	return "[" + negated + quoted + "]"
}
