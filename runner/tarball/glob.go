package tarball

import (
	"cmp"
	"io/fs"
	"path"
	"strings"
)

// Glob returns the names that a pattern of COPY matches, as in fs.Glob. A pattern without * ? and [ must match; others may
// match nothing. If deep is given, ** stands for any number of directories, also none, but not for those that skip omits.
func Glob(fsys fs.FS, pattern string, deep bool, skip func(name string) bool) ([]string, error) {
	pattern = cmp.Or(pattern, ".")
	if !strings.ContainsAny(pattern, `*?[\`) {
		_, err := fs.Lstat(fsys, pattern)
		return []string{pattern}, err
	}
	words := strings.Split(pattern, "/")
	if !deep || !strings.Contains("/"+pattern+"/", "/**/") {
		found, err := fs.Glob(fsys, pattern)
		if err == nil && len(found) == 0 && !strings.ContainsAny(pattern, "*?[") {
			err = fs.ErrNotExist
		}
		return found, err
	}
	var fixed []string // above the first pattern
	for _, w := range words {
		if strings.ContainsAny(w, `*?[\`) {
			break
		}
		fixed = append(fixed, w)
	}
	var found []string
	err := fs.WalkDir(fsys, cmp.Or(path.Join(fixed...), "."), func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if skip(name) {
			return fs.SkipDir
		}
		ok, err := matchWords(words, strings.Split(name, "/"))
		if err != nil || !ok {
			return err
		}
		found = append(found, name)
		if e.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	return found, err
}

// matchWords reports whether the words of a pattern match the words of a name.
func matchWords(pattern, name []string) (bool, error) {
	for i, w := range pattern {
		if w == "**" {
			for skip := range len(name) - i + 1 {
				if ok, err := matchWords(pattern[i+1:], name[i+skip:]); ok || err != nil {
					return ok, err
				}
			}
			return false, nil
		}
		if i >= len(name) {
			return false, nil
		}
		if ok, err := path.Match(w, name[i]); !ok || err != nil {
			return false, err
		}
	}
	return len(pattern) == len(name), nil
}
