package release

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

// program is one of demesne's programs, with what Go wrote into it.
type program struct {
	name    string
	content []byte
	info    *debug.BuildInfo
}

// programs reads demesne's programs in a directory, without links.
func programs(dir string) (found []program, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "demesne*"))
	if err != nil {
		return nil, err
	}
	for _, p := range paths {
		if info, err := os.Lstat(p); err != nil || !info.Mode().IsRegular() {
			continue
		}
		content, err := os.ReadFile(p)
		if err != nil {
			return nil, err
		}
		info, err := buildinfo.Read(bytes.NewReader(content))
		if err != nil {
			return nil, fmt.Errorf("read build information of %q: %w", p, err)
		}
		found = append(found, program{filepath.Base(p), content, info})
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no programs in %q", dir)
	}
	return found, nil
}

func readInfo(path string) (*debug.BuildInfo, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read build information of %q: %w", path, err)
	}
	return info, nil
}

// modules returns the modules of all programs, without demesne's own, by path.
func modules(programs []program) map[string]*debug.Module {
	all := map[string]*debug.Module{}
	for _, p := range programs {
		for _, m := range p.info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			if m.Path != p.info.Main.Path && !strings.HasPrefix(m.Path, ".") {
				all[m.Path] = m
			}
		}
	}
	return all
}

// withDirectories returns files and every directory above them, sorted by name.
func withDirectories(files []file) []file {
	all := map[string]file{}
	for _, f := range files {
		all[f.name] = f
		for dir := path.Dir(f.name); ; dir = path.Dir(dir) {
			all[dir] = file{name: dir, mode: fs.ModeDir | 0o755}
			if dir == "." {
				break
			}
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b file) int { return strings.Compare(a.name, b.name) })
}

// isLicence matches the names of files that a module's licence obliges a copy to have.
func isLicence(name string) bool {
	upper := strings.ToUpper(name)
	for _, word := range []string{"LICENSE", "LICENCE", "COPYING", "NOTICE", "PATENTS"} {
		if strings.HasPrefix(upper, word) && !strings.HasSuffix(upper, ".GO") {
			return true
		}
	}
	return false
}

// licences returns the licences and notices of all modules in the programs, and of Go itself, as one text.
func (o *Options) licences(programs []program, libc string) ([]byte, error) {
	all := modules(programs)
	dirs, err := o.moduleDirs()
	if err != nil {
		return nil, err
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("find Go: %w", err)
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "demesne contains Go, the modules below, and in demesne-runner the GNU C Library %s.\n\n"+
		"The C library is under the GNU Lesser General Public License, version 2.1 or later. make release in the source of demesne\n"+
		"links the program with another version of it.\n", libc)
	section := func(name, dir string) error {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		before := text.Len()
		for _, e := range entries {
			if !isLicence(e.Name()) || e.IsDir() {
				continue
			}
			content, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return err
			}
			fmt.Fprintf(&text, "\n==== %s: %s ====\n\n%s\n", name, e.Name(), bytes.TrimSpace(content))
		}
		if text.Len() == before {
			fmt.Fprintf(&text, "\n==== %s ====\n\nThe module has no licence file. The licence of its repository applies.\n", name)
		}
		return nil
	}
	if err := section("Go "+programs[0].info.GoVersion, strings.TrimSpace(string(root))); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		dir := dirs[name]
		if dir == "" {
			return nil, fmt.Errorf("module %s is not in the module cache", name)
		}
		if err := section(name+" "+all[name].Version, dir); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), nil
}

// moduleDirs returns the directory of each module that this tree requires.
func (o *Options) moduleDirs() (map[string]string, error) {
	cmd := exec.Command("go", "list", "-m", "-f", "{{with .Replace}}{{.Path}}{{else}}{{.Path}}{{end}} {{.Dir}}", "all")
	cmd.Dir = o.Source
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list modules: %w: %s", err, errs.String())
	}
	dirs := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if name, dir, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			dirs[name] = dir
		}
	}
	return dirs, nil
}
