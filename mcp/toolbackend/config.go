package toolbackend

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"demesne/images/imageref"
	"demesne/internal/cmdline"
	"demesne/mcp"
	"demesne/mcp/install"
	"demesne/proxy/policy"
	"demesne/session"
)

// Environment variables.
const (
	varPaths  = "DEMESNE_ALLOWED_PATHS"
	varImages = "DEMESNE_ALLOWED_IMAGES"
	varTools  = "DEMESNE_TOOLS"
	varEgress = "DEMESNE_MAX_EGRESS" // the widest mode of sandboxes
	varAgents = "DEMESNE_NAMESPACE_AGENTS"
)

// serverOptions returns the MCP server's options. root is the output root of s. tools is the list of tool sets from the
// command line; if it is empty, that of the settings applies.
func serverOptions(s *session.Service, by Options, root, tools string, warn io.Writer) (mcp.Options, error) {
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
		wd = func() (string, error) { return home, nil } // that is no default
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
	names, err := parseDomains(by.setting(varDomains))
	if err != nil {
		return mcp.Options{}, err
	}
	modes, err := network(by.setting(varEgress))
	if err != nil {
		return mcp.Options{}, err
	}
	names.widest = modes[len(modes)-1]
	if w := by.setting(varEgress); w == "" || w == "open" {
		names.widest = "" // a person may allow any name
	}
	size, err := thisMachine()
	if err != nil {
		return mcp.Options{}, err
	}
	most, err := ceilings(by.setting, size)
	if err != nil {
		return mcp.Options{}, err
	}
	research, err := mcp.ParseResearch(by.setting(mcp.VarResearch))
	if err != nil {
		return mcp.Options{}, err
	}
	list := fields(by.setting(varImages))
	o := mcp.Options{
		Version: cmdline.Version, Mounts: mounts.Outputs(root, s.Made), Outputs: root, Mine: s.Made, Hidden: by.Namespace != "", Egress: modes, Sets: sets,
		Domain: names.decide, Ceilings: most, Research: research,
		Images: append(imageref.Catalogue(), imageref.Entries(list)...), Image: imageref.Default(by.setting),
		Allowed: func(name string) (ok, stored bool) { return imageref.Permitted(name, list) },
	}
	if by.Namespace == "" { // what a namespace stores is counted, and these images are not
		o.Allowed = func(name string) (ok, stored bool) {
			return imageref.Permitted(name, slices.Concat(list, []string{builtImages}))
		}
	}
	if _, err := session.ParseImage(o.Image); err != nil {
		return o, fmt.Errorf("DEMESNE_DEFAULT_IMAGE %q: %w", o.Image, err)
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
	others := slices.DeleteFunc(fields(list), func(name string) bool { return name == mcp.RunsSet })
	sets, err := parseSets(strings.Join(others, ","))
	if len(others) < len(fields(list)) {
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

// network returns the modes that a model may ask for, up to the operator's widest; empty: all. It excludes modes that allow
// every destination.
func network(widest string) ([]string, error) {
	if _, err := policy.ParseMode(widest); widest != "" && err != nil {
		return nil, fmt.Errorf("%s: %w", varEgress, err)
	}
	names := policy.ModeNames()
	if n := slices.Index(names, widest); n >= 0 {
		names = names[:n+1]
	}
	return slices.DeleteFunc(names, func(name string) bool {
		m, err := policy.ParseMode(name)
		return err != nil || m.Everything()
	}), nil
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

// fields splits a list at commas and white space.
func fields(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' })
}
