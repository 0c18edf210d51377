package jupyter

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"demesne/images/imageref"
	"demesne/internal/cmdline"
	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/kernels/kernelcmd"
	"demesne/kernels/languages"
)

// kernelSpec is a kernelspec of Jupyter's (jupyter_client documentation, "Kernel specs").
type kernelSpec struct {
	Argv          []string          `json:"argv"`
	DisplayName   string            `json:"display_name"`
	Language      string            `json:"language"`
	InterruptMode string            `json:"interrupt_mode"`
	Env           map[string]string `json:"env,omitempty"`
	Metadata      map[string]bool   `json:"metadata"`
}

// installed is a kernel in demesne kernel list.
type installed struct {
	Name        string   `json:"name"`
	DisplayName string   `json:"display_name"`
	Path        string   `json:"path"`
	Argv        []string `json:"argv"`
}

// specFile is the name of a kernelspec in its directory.
const specFile = "kernel.json"

// dataDir returns the directory that install writes to: Jupyter's for this user, or the one below a prefix.
func (f *console) dataDir(o *kernelcmd.Options) (string, error) {
	prefix := o.Prefix
	if o.SysPrefix {
		if prefix = f.environment(); prefix == "" {
			return "", errors.New("--sys-prefix: no virtual environment is active")
		}
	}
	if prefix != "" {
		dir, err := filepath.Abs(prefix)
		return filepath.Join(dir, "share", "jupyter", "kernels"), err
	}
	if dir := f.Getenv("JUPYTER_DATA_DIR"); dir != "" {
		return filepath.Join(dir, "kernels"), nil
	}
	if dir := f.Getenv("XDG_DATA_HOME"); dir != "" {
		return filepath.Join(dir, "jupyter", "kernels"), nil
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".local", "share", "jupyter", "kernels"), err
}

// environment returns the directory of the active virtual environment, or "".
func (f *console) environment() string {
	if dir := f.Getenv("VIRTUAL_ENV"); dir != "" {
		return dir
	}
	return f.Getenv("CONDA_PREFIX")
}

// install writes a kernelspec.
func (f *console) install(o *kernelcmd.Options, typed []string) (int, error) {
	switch {
	case o.Name == "":
		return 0, text.Hinted(errors.New("install: needs --name NAME"), "demesne kernel install --name sandbox")
	case o.Prefix != "" && o.SysPrefix:
		return 0, errors.New("install: --prefix and --sys-prefix name different places")
	case o.Connection != "":
		return 0, errors.New("install: -f is a flag of run")
	}
	if _, err := f.options(o, "python"); err != nil {
		return 0, err
	}
	rules, err := kernelcmd.Rules(typed, absolute)
	if err != nil {
		return 0, err
	}
	spec := kernelSpec{
		Argv:        append([]string{ownProgram(), "kernel", "run", "-f", "{connection_file}"}, rules...),
		DisplayName: o.DisplayName, Language: "python", InterruptMode: "signal", Metadata: map[string]bool{"debugger": false},
	}
	if l, ok := languages.Find(o.Language); ok && l.Kernel != "" {
		spec.Language = l.Kernel
	}
	if spec.DisplayName == "" {
		spec.DisplayName = fmt.Sprintf("%s (sandbox %s)", strings.ToUpper(spec.Language[:1])+spec.Language[1:], o.Name)
	}
	if dir := f.Getenv("DEMESNE_LIBEXEC"); dir != "" {
		spec.Env = map[string]string{"DEMESNE_LIBEXEC": dir}
	}
	root, err := f.dataDir(o)
	if err != nil {
		return 0, err
	}
	dir := filepath.Join(root, o.Name)
	if old, err := readSpec(dir); err == nil && !old.own() {
		return 0, text.Hinted(fmt.Errorf("install: %q is another program's kernel", dir), "choose another --name")
	}
	if err := spec.write(dir); err != nil {
		return 0, fmt.Errorf("install: write %q: %w", dir, fsutil.Reason(err))
	}
	fmt.Fprintf(f.Stdout, "installed %s: %s\n", o.Name, dir)
	if o.Workspace == "" {
		fmt.Fprintln(f.Stdout, "its code can change the files in the directory of the notebook, and no others of this machine")
	}
	return 0, nil
}

// ownProgram returns the program that a kernelspec names: demesne beside this one or in bin beside its libexec, or else this
// one.
func ownProgram() string {
	self, err := os.Executable()
	if err != nil {
		return "demesne"
	}
	for _, place := range []string{"demesne", "../../bin/demesne"} {
		if path := filepath.Join(filepath.Dir(self), place); fsutil.Exists(path) {
			return path
		}
	}
	if found, err := exec.LookPath("demesne"); err == nil {
		return found
	}
	return self
}

// absolute makes the path in a flag's value absolute.
func absolute(flag *cmdline.Flag, value string) string {
	switch flag.Complete {
	case cmdline.File, cmdline.Directory:
		if full, err := filepath.Abs(value); err == nil && value != "none" {
			return full
		}
	case cmdline.Image:
		return imageref.Absolute(value)
	}
	return value
}

// write replaces the kernelspec in a directory at once.
func (s *kernelSpec) write(dir string) error {
	raw, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return fsutil.WriteFile(filepath.Join(dir, specFile), append(raw, '\n'), 0o644)
}

func readSpec(dir string) (s kernelSpec, err error) {
	raw, err := os.ReadFile(filepath.Join(dir, specFile))
	if err != nil {
		return s, err
	}
	var loose struct {
		Argv []string `json:"argv"`
		Name string   `json:"display_name"`
	}
	err = json.Unmarshal(raw, &loose)
	s.Argv, s.DisplayName = loose.Argv, loose.Name
	return s, err
}

// own reports whether install wrote a kernelspec.
func (s *kernelSpec) own() bool {
	return len(s.Argv) >= 5 && strings.HasPrefix(filepath.Base(s.Argv[0]), "demesne") && slices.Equal(s.Argv[1:4], []string{"kernel", "run", "-f"})
}

// found returns the kernels that demesne installed, in Jupyter's order of directories.
func (f *console) found(o *kernelcmd.Options) (all []installed, err error) {
	dir, err := f.dataDir(o)
	if err != nil {
		return nil, err
	}
	dirs := []string{dir}
	if o.Prefix == "" && !o.SysPrefix {
		if e := f.environment(); e != "" {
			dirs = append(dirs, filepath.Join(e, "share/jupyter/kernels"))
		}
		dirs = append(dirs, "/usr/local/share/jupyter/kernels", "/usr/share/jupyter/kernels")
	}
	for _, d := range dirs {
		entries, err := os.ReadDir(d)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("read %q: %w", d, fsutil.Reason(err))
		}
		for _, e := range entries {
			path := filepath.Join(d, e.Name())
			if s, err := readSpec(path); err == nil && s.own() {
				all = append(all, installed{e.Name(), s.DisplayName, path, s.Argv})
			}
		}
	}
	return all, nil
}

func (f *console) list(o *kernelcmd.Options) (int, error) {
	all, err := f.found(o)
	if err != nil {
		return 0, err
	}
	if o.JSON {
		raw, err := json.MarshalIndent(append([]installed{}, all...), "", "  ")
		fmt.Fprintf(f.Stdout, "%s\n", text.SafeJSON(string(raw)))
		return 0, err
	}
	for _, k := range all {
		fmt.Fprintf(f.Stdout, "%-16s %s\n", k.Name, text.SafeLine(k.Path))
	}
	return 0, nil
}

// remove removes kernelspecs that install wrote.
func (f *console) remove(o *kernelcmd.Options, names []string) (int, error) {
	if len(names) == 0 {
		return 0, text.Hinted(errors.New("remove: needs a name"), "demesne kernel list lists them")
	}
	all, err := f.found(o)
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		i := slices.IndexFunc(all, func(k installed) bool { return strings.EqualFold(k.Name, name) })
		if i < 0 {
			return 0, text.Hinted(fmt.Errorf("remove: demesne has not installed a kernel %q", name), "demesne kernel list lists them")
		}
		if err := os.Remove(filepath.Join(all[i].Path, specFile)); err != nil {
			return 0, fmt.Errorf("remove %q: %w", all[i].Path, fsutil.Reason(err))
		}
		os.Remove(all[i].Path) // fails if the user has added a logo
		fmt.Fprintf(f.Stdout, "removed %s: %s\n", name, all[i].Path)
	}
	return 0, nil
}
