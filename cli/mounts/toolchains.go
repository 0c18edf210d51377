package mounts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/semver"

	"demesne/cli/app"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/runner"
)

// toolchain is a row of the table: where a version manager keeps programs below $HOME. Names with * are patterns, of which
// bin uses one directory: the one in the caller's PATH, or else the last version.
type toolchain struct {
	name   string
	places []string   // shown if they exist, and at least one must; none has a credential
	bin    []string   // directories of PATH, in its order
	env    []variable // variables whose directory exists; below is relative to $HOME
}

// toolchains is the table. Nothing in it names all of a directory where a program keeps credentials, such as ~/.cargo.
var toolchains = []toolchain{
	{"nvm", []string{".nvm", ".config/nvm"}, []string{".nvm/versions/node/*/bin", ".config/nvm/versions/node/*/bin"}, []variable{{"NVM_DIR", ".config/nvm"}, {"NVM_DIR", ".nvm"}}},
	{"pyenv", []string{".pyenv"}, []string{".pyenv/shims", ".pyenv/bin"}, []variable{{"PYENV_ROOT", ".pyenv"}}},
	{"uv", []string{".local/bin/uv", ".local/bin/uvx", ".local/share/uv"}, []string{".local/bin"}, []variable{{"UV_PYTHON_INSTALL_DIR", ".local/share/uv/python"}}},
	{"rustup", []string{".rustup", ".cargo/bin"}, []string{".cargo/bin"}, []variable{{"RUSTUP_HOME", ".rustup"}}},
	{"go", []string{"go/bin", "sdk", ".local/go"}, []string{"go/bin", ".local/go/bin", "sdk/go*/bin"}, nil},
}

// toolchainNames lists the known toolchains.
func toolchainNames() (names []string) {
	for _, t := range toolchains {
		names = append(names, t.name)
	}
	return names
}

// ToolchainFlag is a flag of agent.
func (o *Options) ToolchainFlag() cmdline.Flag {
	return cmdline.Flag{Group: app.GroupSandbox, Long: "toolchain", Arg: "NAME", Repeat: true, Words: toolchainNames(),
		Set:  cmdline.List(&o.toolchains, func(s string) error { return cmdline.OneOf(s, toolchainNames()) }),
		Help: "show a toolchain of your home directory, read-only at its own path and in PATH: nvm, pyenv, uv, rustup or go"}
}

// showToolchains adds the named toolchains of the user's home directory to spec.
func (o *Options) showToolchains(a *app.App, spec *runner.Spec) error {
	if len(o.toolchains) == 0 {
		return nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return fmt.Errorf("find home directory: %w", err)
	}
	return addToolchains(spec, o.toolchains, home, filepath.SplitList(a.Getenv("PATH")))
}

// addToolchains adds the named toolchains of a home directory to spec. path is the caller's PATH.
func addToolchains(spec *runner.Spec, names []string, home string, path []string) error {
	for _, t := range toolchains {
		if !slices.Contains(names, t.name) {
			continue
		}
		found := false
		for _, place := range t.places {
			m, err := parseMount(filepath.Join(home, place) + ":ro")
			switch {
			case errors.Is(err, os.ErrNotExist):
				continue
			case err != nil:
				return fmt.Errorf("toolchain %q: %w", t.name, err)
			}
			found = true
			if !slices.ContainsFunc(spec.Mounts, func(o runner.Mount) bool { return o.Target == m.Target }) {
				spec.Mounts = append(spec.Mounts, m.Mount)
			}
		}
		if !found {
			return text.Hinted(fmt.Errorf("toolchain %q: your home directory has no %s", t.name, strings.Join(t.places, " and no ")), "--mount shows one that is elsewhere")
		}
		for _, bin := range t.bin {
			if dir := oneOf(filepath.Join(home, bin), path); dir != "" && !slices.Contains(spec.Defaults.Path, dir) {
				spec.Defaults.Path = append(spec.Defaults.Path, dir)
			}
		}
		for _, v := range t.env {
			if dir := filepath.Join(home, v.below); isDirectory(dir) {
				spec.Defaults.Env = append(spec.Defaults.Env, v.name+"="+dir)
			}
		}
	}
	return nil
}

// oneOf returns the directory that a pattern names: the first of path, else the last version, or "".
func oneOf(pattern string, path []string) string {
	all, _ := filepath.Glob(pattern) // no error: the patterns are constants, and a home with [ finds nothing
	all = slices.DeleteFunc(all, func(dir string) bool { return !isDirectory(dir) })
	for _, dir := range path {
		if slices.Contains(all, filepath.Clean(dir)) {
			return filepath.Clean(dir)
		}
	}
	if len(all) == 0 {
		return ""
	}
	return slices.MaxFunc(all, func(a, b string) int { return semver.Compare(version(a), version(b)) })
}

// version returns the version in the name of a directory, such as v1.2.3 of …/go1.2.3/bin.
func version(dir string) string {
	for name := range strings.SplitSeq(dir, "/") {
		for _, before := range []string{"v", "go"} {
			if v, ok := strings.CutPrefix(name, before); ok && semver.IsValid("v"+v) {
				return "v" + v
			}
		}
	}
	return ""
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
