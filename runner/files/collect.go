package files

import (
	"io"
	"os"
	"path/filepath"
	"strings"
)

const (
	collectedMax  = 500      // files of an answer
	collectedEach = 64 << 10 // bytes of a file whose content is in the answer
	collectedAll  = 1 << 20  // bytes of all contents
	dirsMax       = 64       // directories of a list in the environment
)

// collect returns the files that match the patterns, in the patterns' order, each once.
func collect(c Collect) (*Collected, error) {
	all := &Collected{Files: []File{}}
	seen, room := map[string]bool{}, int64(collectedAll)
	for _, p := range c.Patterns {
		for _, glob := range expand(p) {
			paths, err := filepath.Glob(glob)
			if err != nil {
				return nil, err
			}
			for _, path := range paths {
				if seen[path] {
					continue
				}
				if len(all.Files) == collectedMax {
					all.Cut = true
					return all, nil
				}
				seen[path] = true
				if f, ok := small(path, min(room, collectedEach)); ok {
					room -= int64(len(f.Content))
					all.Files = append(all.Files, f)
				}
			}
		}
	}
	return all, nil
}

// small returns a regular file, with its content if that has at most so many bytes.
func small(path string, most int64) (f File, ok bool) {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return f, false
	}
	f = File{Path: path, Size: info.Size(), Executable: info.Mode()&0o111 != 0}
	if f.Size > most {
		return f, true
	}
	r, _, err := open(path)
	if err != nil {
		return f, true
	}
	defer r.Close()
	content, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(content)) <= most {
		f.Content = content
	}
	return f, true
}

// expand replaces an environment variable at the pattern's start by each directory of its value.
func expand(pattern string) []string {
	if !strings.HasPrefix(pattern, "$") {
		return []string{pattern}
	}
	name, rest, _ := strings.Cut(pattern[1:], "/")
	var all []string
	for _, dir := range filepath.SplitList(os.Getenv(name)) {
		if filepath.IsAbs(dir) && len(all) < dirsMax {
			all = append(all, filepath.Join(dir, rest))
		}
	}
	return all
}
