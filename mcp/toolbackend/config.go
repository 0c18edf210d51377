package toolbackend

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"demesne/internal/cmdline"
	"demesne/mcp"
	"demesne/mcp/install"
	"demesne/session/operator"
)

// Environment variables.
const (
	varPaths = "DEMESNE_ALLOWED_PATHS"
	varTools = "DEMESNE_TOOLS"
)

// policy returns what the callers may ask.
func (o Options) policy() (*operator.Policy, error) {
	if o.Policy != nil {
		return o.Policy, nil
	}
	getenv := o.Session.Getenv
	b, err := operator.FromEnvironment(getenv)
	if err != nil {
		return nil, err
	}
	return operator.New(b, operator.Caller{Namespace: o.Namespace, Model: true, Secrets: cmp.Or(o.Namespace, getenv(operator.VarSecrets)), VaultKey: getenv("DEMESNE_VAULT_KEY")})
}

// serverOptions returns the MCP server's options. root is the output root. tools is the list of tool sets from the
// command line; if it is empty, the settings' list applies.
func (f *Backend) serverOptions(root, tools string, warn io.Writer) (mcp.Options, error) {
	by := f.options
	sets, err := by.toolSets(tools)
	if err != nil {
		return mcp.Options{}, err
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/"
	}
	wd := os.Getwd
	if by.Listed {
		wd = func() (string, error) { return home, nil } // that is not a default
	}
	dirs, err := allowedPaths(by.setting(varPaths), home, wd)
	if err != nil {
		return mcp.Options{}, err
	}
	dirs = present(dirs, warn)
	mounts, err := mcp.NewMounts(dirs...)
	if err != nil {
		return mcp.Options{}, err
	}
	research, err := mcp.ParseResearch(by.setting(mcp.VarResearch))
	if err != nil {
		return mcp.Options{}, err
	}
	p := f.Policy
	offered, hostless, err := p.Offered()
	if err != nil {
		return mcp.Options{}, err
	}
	o := mcp.Options{
		Version: cmdline.Version, Mounts: mounts.Outputs(root, f.Made), Outputs: root, Mine: f.Made, Hidden: by.Namespace != "", Sets: sets,
		Policy: p, Egress: p.Modes(), Images: p.Images(), Image: p.Default().Given, Research: research,
	}
	for _, s := range offered {
		o.Secrets = append(o.Secrets, mcp.SecretName{Name: s.Name, Host: s.Host})
	}
	for _, name := range hostless {
		fmt.Fprintf(warn, "warning: %s: %s has no host, and is ignored\n", operator.VarSecrets, name)
	}
	return o, nil
}

// toolSets returns the names in a list, or in the settings. With [Options].Runs the list may have their set, which is the
// default.
func (o Options) toolSets(list string) ([]string, error) {
	if list == "" {
		list = o.setting(varTools)
	}
	if o.Runs == nil {
		return parseSets(list)
	}
	if list == "" {
		return []string{mcp.RunsSet}, nil
	}
	others := slices.DeleteFunc(operator.Fields(list), func(name string) bool { return name == mcp.RunsSet })
	sets, err := parseSets(strings.Join(others, ","))
	if len(others) < len(operator.Fields(list)) {
		sets = append(sets, mcp.RunsSet)
	}
	return sets, err
}

func parseSets(list string) ([]string, error) {
	sets, err := install.ParseTools(list)
	if err != nil {
		return nil, fmt.Errorf("tools: %w", err)
	}
	return sets, nil
}

// allowedPaths returns the directories that may be mounted: those in value, or else the working directory. It
// returns none if the working directory is a home directory or a parent of one: clients often start a server in
// an arbitrary directory.
func allowedPaths(value, home string, wd func() (string, error)) ([]string, error) {
	dirs := slices.DeleteFunc(filepath.SplitList(value), func(s string) bool { return s == "" })
	if len(dirs) > 0 {
		return dirs, nil
	}
	dir, err := wd()
	if err != nil {
		return nil, fmt.Errorf("find working directory: %w", err)
	}
	if above(dir, home) || above(resolved(dir), resolved(home)) {
		return nil, nil
	}
	return []string{dir}, nil
}

// present returns the directories that exist, and warns of others: a list is often the same on several machines.
func present(dirs []string, warn io.Writer) []string {
	return slices.DeleteFunc(dirs, func(dir string) bool {
		_, err := os.Stat(dir)
		missing := errors.Is(err, fs.ErrNotExist)
		if missing {
			fmt.Fprintf(warn, "warning: %s: %q does not exist, and is ignored\n", varPaths, dir)
		}
		return missing
	})
}

// above reports whether dir is path or a parent of it. It errs on the side of true.
func above(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err != nil || rel == "." || filepath.IsLocal(rel)
}

func resolved(path string) string {
	if to, err := filepath.EvalSymlinks(path); err == nil {
		return to
	}
	return path
}
