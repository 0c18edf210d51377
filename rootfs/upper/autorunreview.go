package upper

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"demesne/internal/text"
)

// Bounds of what Review names.
const (
	reviewFiles  = 20 // files that programs execute or obey by themselves, and as many others; at least one for each program
	reviewBuilds = 3  // files of builds
)

// Review walks the directory again and returns a line for each new or changed file, for the person who will use it. The
// most important come first. A frontend prints it after a sandbox could write to the directory.
func (a *Autorun) Review() (lines []string, err error) {
	now, err := a.Again()
	if err != nil {
		return nil, fmt.Errorf("look for files that this machine would execute: %w", err)
	}
	files := now.Since(a)
	for i := range files {
		files[i].Path = filepath.Join(a.name, files[i].Path)
	}
	lines = Review(files)
	for _, walk := range []*Autorun{a, now} {
		if walk.Unseen != "" {
			lines = append(lines, fmt.Sprintf("review before use: %s is too large to look at every file, as below %s", shown(a.name), shown(filepath.Join(a.name, walk.Unseen))))
			break
		}
	}
	return lines, nil
}

// Review returns the lines that name files, in their order within each class. Files that only a build executes have one
// line. A program with many files gets few lines and a count, so that they hide no other program's.
func Review(files []Executable) (lines []string) {
	var of [classes][]Executable
	for _, f := range files {
		of[f.Class] = append(of[f.Class], f)
	}
	for class, files := range of[:Build] {
		lines = append(lines, reviewClass(Class(class), files)...)
	}
	builds := of[Build]
	if len(builds) <= 1 {
		return append(lines, reviewClass(Build, builds)...)
	}
	var names []string
	for _, f := range builds[:min(len(builds), reviewBuilds)] {
		names = append(names, f.shown())
	}
	line := fmt.Sprintf("review before use: %d files that builds would execute: %s", len(builds), strings.Join(names, ", "))
	if more := len(builds) - len(names); more > 0 {
		line += fmt.Sprintf(" and %d more", more)
	}
	return append(lines, line)
}

// reviewClass names the files of one class, by program. The programs are in the order of their first files.
func reviewClass(class Class, files []Executable) (lines []string) {
	var programs []string
	of := map[string][]Executable{}
	for _, f := range files {
		if of[f.By] == nil {
			programs = append(programs, f.By)
		}
		of[f.By] = append(of[f.By], f)
	}
	verb := "execute"
	if class == Obeyed {
		verb = "obey"
	}
	most := max(1, reviewFiles/max(1, len(programs)))
	for _, by := range programs {
		files := of[by]
		for _, f := range files[:min(len(files), most)] {
			lines = append(lines, fmt.Sprintf("review before use: %s, which %s would %s", f.shown(), by, verb))
		}
		if more := len(files) - most; more > 0 {
			lines = append(lines, fmt.Sprintf("review before use: and %d more, which %s would %s", more, by, verb))
		}
	}
	return lines
}

func (f Executable) shown() string {
	if f.New {
		return shown(f.Path) + " (new)"
	}
	return shown(f.Path) + " (changed)"
}

// shown returns a path as it is printed: quoted if a terminal would not show it as it is.
func shown(p string) string {
	if text.SafeLine(p) == p {
		return p
	}
	return strconv.Quote(p)
}
