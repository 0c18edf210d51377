package agents

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"demesne/runner"
)

// program says how to start an agent's program in a sandbox.
type program struct {
	argv    []string // the first elements
	mounts  []runner.Mount
	inImage bool
	image   string // of the provider's row; empty: the host's files, or the image that the caller chose
}

// Image returns the image that the sandbox must have: this host has no installation, and the provider's row names the
// image that has one. It is empty where the caller chooses.
func (a *Agent) Image() string { return a.program.image }

// program finds the program of p: in the image that the caller chose, on this host, or in the image of the row.
func (c *Catalog) program(p Provider) (program, error) {
	if c.image != "" && c.image != hostImage {
		return program{argv: p.commandInImage(), inImage: true}, nil
	}
	argv, mounts, err := c.o.installed(p)
	if err != nil && p.Program.Image != "" && c.image == "" {
		return program{argv: p.commandInImage(), inImage: true, image: p.Program.Image}, nil
	}
	return program{argv: argv, mounts: mounts}, err
}

// startScript starts the program of an image. $0 is its name. A shell's own message would not say what is missing where.
const startScript = `command -v "$0" >/dev/null || { echo "demesne: the image has no program '$0'" >&2; exit 127; }; exec "$0" "$@"`

// commandInImage returns the first elements of argv for the program in an image.
func (p Provider) commandInImage() []string {
	if p.Program.Shell == "" {
		return []string{p.Command}
	}
	return []string{p.Program.Shell, "-c", startScript, p.Command}
}

// installed finds the host's own installation of p through PATH. It returns the first elements of argv, and read-only
// mounts of what the program needs, each at its own path. Files below /usr need no mount: the sandbox has the host's.
//
// It mounts packages (directories in a node_modules) and single files, never a directory that could hold more.
func (o Options) installed(p Provider) (argv []string, mounts []runner.Mount, err error) {
	path, err := o.look(p.Command)
	if err != nil {
		return nil, nil, err
	}
	f := finder{guarded: o.guarded()}
	native, err := native(path, p.Program.Native)
	if err != nil {
		return nil, nil, err
	}
	if interpreter := shebang(native); interpreter == "" && !isELF(native) {
		return nil, nil, fmt.Errorf("find program %q: %s is neither an executable nor a script: its package for this platform is missing", p.Command, native)
	} else if interpreter != "" {
		node, err := o.interpreter(interpreter)
		if err != nil {
			return nil, nil, fmt.Errorf("%s is a script: %w", native, err)
		}
		argv = append(argv, node)
		f.add(node)
	}
	argv = append(argv, native)
	root := packageRoot(native)
	if root == "" {
		f.add(native)
		for _, name := range p.Program.Beside {
			if file := filepath.Join(filepath.Dir(native), name); isFile(file) {
				f.add(file)
			}
		}
	} else if shebang(native) == "" {
		f.add(root) // an executable needs no other package
	} else {
		f.addPackage(root)
	}
	return argv, f.mounts, f.err
}

// ShimMark is the second line of a shim: a script that starts demesne in place of an agent's program. Programs are looked for
// behind it.
const ShimMark = "# A shim of demesne agent."

// IsShim reports whether a file is a shim.
func IsShim(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var first [64]byte
	n, _ := io.ReadFull(f, first[:])
	_, rest, _ := strings.Cut(string(first[:n]), "\n")
	return strings.HasPrefix(rest, ShimMark+"\n")
}

// look finds a program in PATH and resolves links. Relative directories of PATH do not count.
func (o Options) look(name string) (string, error) {
	for _, dir := range filepath.SplitList(o.Env("PATH")) {
		path := filepath.Join(dir, name)
		if st, err := os.Stat(path); !filepath.IsAbs(dir) || err != nil || !st.Mode().IsRegular() || st.Mode()&0o111 == 0 || IsShim(path) {
			continue
		}
		return filepath.EvalSymlinks(path)
	}
	return "", fmt.Errorf("find program %q in PATH: %w", name, fs.ErrNotExist)
}

// interpreter resolves the program of a first line "#!…".
func (o Options) interpreter(line string) (string, error) {
	words := strings.Fields(line)
	if len(words) == 0 {
		return "", errors.New("it names no interpreter")
	}
	if filepath.Base(words[0]) == "env" {
		words = slices.DeleteFunc(words[1:], func(w string) bool { return strings.HasPrefix(w, "-") || strings.Contains(w, "=") })
	}
	if len(words) == 0 {
		return "", errors.New("it names no interpreter")
	}
	if filepath.IsAbs(words[0]) {
		return filepath.EvalSymlinks(words[0])
	}
	return o.look(words[0])
}

// shebang returns the text after "#!" in the first line of a file, or "".
func shebang(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	line, _ := bufio.NewReaderSize(f, 256).ReadSlice('\n')
	text, _ := strings.CutPrefix(string(line), "#!")
	if text == string(line) {
		return ""
	}
	return strings.TrimSpace(text)
}

// native replaces a script of npm that starts the platform's executable by that executable, where it exists.
func native(path, pattern string) (string, error) {
	root := packageRoot(path)
	if pattern == "" || root == "" || isELF(path) {
		return path, nil
	}
	pattern = strings.ReplaceAll(pattern, "{arch}", arch())
	for _, modules := range modulesOf(root) {
		found, err := filepath.Glob(filepath.Join(modules, pattern))
		if err != nil {
			return "", fmt.Errorf("find program: pattern %q: %w", pattern, err)
		}
		if len(found) > 0 {
			return filepath.EvalSymlinks(found[0])
		}
	}
	return path, nil
}

// packageRoot returns the directory of the npm package that has path, or "".
func packageRoot(path string) string {
	i := strings.LastIndex(path, "/node_modules/")
	if i < 0 {
		return ""
	}
	i += len("/node_modules/")
	parts := strings.SplitN(path[i:], "/", 3)
	n := 1
	if strings.HasPrefix(parts[0], "@") {
		n = 2
	}
	if len(parts) <= n {
		return ""
	}
	return path[:i] + strings.Join(parts[:n], "/")
}

// modulesOf lists the node_modules directories that resolve the dependencies of a package, the nearest first.
func modulesOf(root string) (all []string) {
	for dir := root; dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		if filepath.Base(dir) == "node_modules" {
			all = append(all, dir)
		} else {
			all = append(all, filepath.Join(dir, "node_modules"))
		}
	}
	return slices.Compact(all)
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

func isELF(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var magic [4]byte
	_, err = f.Read(magic[:])
	return err == nil && string(magic[:]) == "\x7fELF"
}

// guarded lists the home directory and the files with credentials of all built-in rows.
func (o Options) guarded() (all []string) {
	if o.Home == "" {
		return nil
	}
	all = append(all, o.Home)
	for _, p := range table() {
		for _, c := range p.Credentials {
			if file := o.file(c); file != "" {
				all = append(all, file)
			}
		}
	}
	return all
}

// finder collects mounts.
type finder struct {
	guarded []string // paths that no mount may contain
	mounts  []runner.Mount
	err     error
}

// add mounts path at itself, unless it is already in the sandbox.
func (f *finder) add(path string) {
	if strings.HasPrefix(path, "/usr/") {
		return
	}
	for _, m := range f.mounts {
		if path == m.Target || strings.HasPrefix(path, m.Target+"/") {
			return
		}
	}
	// The rules above never choose such a directory. This is the last line of defence.
	for _, g := range f.guarded {
		if g == path || strings.HasPrefix(g, path+"/") {
			f.err = fmt.Errorf("refuse to mount %s: it contains %s", path, g)
			return
		}
	}
	f.mounts = append(f.mounts, runner.Mount{Source: path, Target: path, ReadOnly: true})
}

// addPackage mounts a package and, recursively, the packages that it depends on.
func (f *finder) addPackage(root string) {
	before := len(f.mounts)
	if f.add(root); f.err != nil || len(f.mounts) == before {
		return
	}
	data, err := os.ReadFile(filepath.Join(root, "package.json"))
	if err != nil {
		return
	}
	var p struct{ Dependencies, OptionalDependencies map[string]string }
	if json.Unmarshal(data, &p) != nil {
		return
	}
	for _, deps := range []map[string]string{p.Dependencies, p.OptionalDependencies} {
		for name := range deps {
			f.addDependency(root, name)
		}
	}
	slices.SortFunc(f.mounts, func(a, b runner.Mount) int { return strings.Compare(a.Target, b.Target) })
}

func (f *finder) addDependency(root, name string) {
	if !filepath.IsLocal(name) {
		return
	}
	for _, modules := range modulesOf(root) {
		if isFile(filepath.Join(modules, name, "package.json")) {
			if dir, err := filepath.EvalSymlinks(filepath.Join(modules, name)); err == nil && packageRoot(dir+"/x") == dir {
				f.addPackage(dir)
			}
			return
		}
	}
}
