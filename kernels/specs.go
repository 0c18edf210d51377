package kernels

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"demesne/internal/lazy"
	"demesne/internal/text"
	"demesne/runner/files"
)

// Spec is a kernelspec: how a kernel starts (jupyter_client documentation, "Kernel specs"). It is the sandbox's own, and
// names only programs of the sandbox.
type Spec struct {
	Name string `json:"-"` // of its directory, in lower case
	Dir  string `json:"-"` // in the sandbox

	Argv          []string          `json:"argv"`
	DisplayName   string            `json:"display_name"`
	Language      string            `json:"language"`
	InterruptMode string            `json:"interrupt_mode"` // "signal", which is the default, or "message"
	Env           map[string]string `json:"env"`
}

// Root lists the kernels and their programs in a sandbox's root.
type Root struct {
	Specs    []Spec            // each name once; the first directory wins
	Programs map[string]string // the requested ones that exist: the path by name
}

// specDirs are the places of kernelspecs, in Jupyter's order (jupyter_core documentation, "Data files"). A Python outside of
// /usr has its own beside its programs, so PATH leads to virtual environments' kernelspecs.
var specDirs = []string{
	"$JUPYTER_PATH", "$JUPYTER_DATA_DIR", "$XDG_DATA_HOME/jupyter", "$HOME/.local/share/jupyter",
	"$PATH/../share/jupyter", "/usr/local/share/jupyter", "/usr/share/jupyter",
}

// Bounds of a kernelspec.
const (
	maxSpecs = 100
	maxArgv  = 64 // arguments, and environment variables
	maxLabel = 100
)

// Look finds the kernelspecs of the sandbox's root, and programs in its PATH; it ignores empty names. It costs one command in the sandbox.
func Look(ctx context.Context, sb Sandbox, programs ...string) (*Root, error) {
	var c files.Collect
	for _, p := range programs {
		if p != "" {
			c.Patterns = append(c.Patterns, "$PATH/"+p)
		}
	}
	for _, dir := range specDirs {
		c.Patterns = append(c.Patterns, dir+"/kernels/*/kernel.json")
	}
	a, err := sb.Files(ctx, files.Request{Collect: &c})
	if err != nil {
		return nil, fmt.Errorf("find kernels: %w", err)
	}
	r := &Root{Programs: map[string]string{}}
	if a.Collected == nil {
		return r, nil
	}
	for _, f := range a.Collected.Files {
		r.add(f, programs)
	}
	return r, nil
}

// add adds a file of the sandbox if it is a kernelspec or one of the programs. The file is untrusted.
func (r *Root) add(f files.File, programs []string) {
	if path.Base(f.Path) == "kernel.json" {
		s, ok := parseSpec(f.Path, f.Content)
		same := func(o Spec) bool { return o.Name == s.Name }
		if ok && len(r.Specs) < maxSpecs && !slices.ContainsFunc(r.Specs, same) {
			r.Specs = append(r.Specs, s)
		}
		return
	}
	name := path.Base(f.Path)
	if slices.Contains(programs, name) && r.Programs[name] == "" && f.Executable {
		r.Programs[name] = f.Path
	}
}

// specName is the form of a kernelspec's name, in lower case.
var specName = lazy.Regexp{Expr: `^[a-z0-9._-]{1,100}$`}

// parseSpec reads the file of a kernelspec. ok is false if that is not one that could start a kernel.
func parseSpec(file string, content []byte) (s Spec, ok bool) {
	if json.Unmarshal(content, &s) != nil {
		return s, false
	}
	s.Dir = path.Dir(file)
	s.Name = strings.ToLower(path.Base(s.Dir))
	if !specName.Get().MatchString(s.Name) || len(s.Argv) == 0 || s.Argv[0] == "" || len(s.Argv) > maxArgv || len(s.Env) > maxArgv {
		return s, false
	}
	if strings.ContainsRune(strings.Join(s.Argv, ""), 0) {
		return s, false
	}
	for k, v := range s.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return s, false
		}
	}
	s.DisplayName, s.Language = label(s.DisplayName), label(s.Language)
	return s, true
}

// label returns a text of the sandbox as it may be shown.
func label(s string) string {
	return text.SafeLine(strings.ToValidUTF8(s[:min(len(s), maxLabel)], ""))
}

// Spec returns the kernelspec of that name; without a name, the language's. A kernelspec that has the language's name in
// its own, as python3 has, precedes others, and then the order of the directories decides.
func (r *Root) Spec(name, language string) (Spec, bool) {
	var others []Spec
	for _, s := range r.Specs {
		switch {
		case name != "":
			if s.Name == strings.ToLower(name) {
				return s, true
			}
		case language == "" || !strings.EqualFold(s.Language, language):
		case strings.HasPrefix(s.Name, strings.ToLower(language)):
			return s, true
		default:
			others = append(others, s)
		}
	}
	if len(others) > 0 {
		return others[0], true
	}
	return Spec{}, false
}

// command returns the command that starts the kernel with a connection file, as argv and environment.
func (s Spec) command(file string) (argv, env []string) {
	fill := strings.NewReplacer("{connection_file}", file, "{resource_dir}", s.Dir)
	for _, a := range s.Argv {
		argv = append(argv, fill.Replace(a))
	}
	for _, k := range slices.Sorted(maps.Keys(s.Env)) {
		env = append(env, k+"="+s.Env[k])
	}
	return argv, env
}
