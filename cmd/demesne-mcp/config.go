package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"demesne/cmd/internal/cli"
	"demesne/cmd/internal/mcpinstall"
	"demesne/cmd/internal/session"
	"demesne/images/imageref"
	"demesne/mcp"
	"demesne/proxy/policy"
)

// Environment variables.
const (
	varPaths  = "DEMESNE_ALLOWED_PATHS"
	varImages = "DEMESNE_ALLOWED_IMAGES"
	varToken  = "DEMESNE_MCP_TOKEN"
	varTools  = "DEMESNE_TOOLS"
)

// serverOptions returns the MCP server's options. root is the output root of s. tools is the list of tool sets from the command line; if it
// is empty, the environment's applies.
func serverOptions(s *session.Service, root, tools string) (mcp.Options, error) {
	sets, err := toolSets(tools, os.Getenv(varTools))
	if err != nil {
		return mcp.Options{}, err
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/"
	}
	dirs, err := allowedPaths(os.Getenv(varPaths), home, os.Getwd)
	if err != nil {
		return mcp.Options{}, err
	}
	dirs = present(dirs, os.Stderr)
	mounts, err := mcp.NewMounts(dirs...)
	if err != nil {
		return mcp.Options{}, err
	}
	names, err := parseDomains(os.Getenv(varDomains))
	if err != nil {
		return mcp.Options{}, err
	}
	size, err := thisMachine()
	if err != nil {
		return mcp.Options{}, err
	}
	most, err := ceilings(os.Getenv, size)
	if err != nil {
		return mcp.Options{}, err
	}
	list := fields(os.Getenv(varImages))
	o := mcp.Options{
		Version: cli.Version, Mounts: mounts.Outputs(root, s.Made), Outputs: root, Mine: s.Made, Egress: network(), Sets: sets,
		Domain: names.decide, Ceilings: most,
		Images: append(imageref.Catalogue(), imageref.Entries(list)...), Image: imageref.Default(os.Getenv),
		Allowed: func(name string) (ok, stored bool) { return imageref.Permitted(name, list) },
	}
	if _, err := session.ParseImage(o.Image); err != nil {
		return o, fmt.Errorf("DEMESNE_DEFAULT_IMAGE %q: %w", o.Image, err)
	}
	return o, nil
}

func toolSets(said, fallback string) ([]string, error) {
	if said == "" {
		said = fallback
	}
	sets, err := mcpinstall.ParseTools(said)
	if err != nil {
		return nil, fmt.Errorf("tools: %w", err)
	}
	return sets, nil
}

// network returns the modes that a model may ask for. It excludes modes that allow every destination.
func network() []string {
	return slices.DeleteFunc(policy.ModeNames(), func(name string) bool {
		m, err := policy.ParseMode(name)
		return err != nil || m.Everything()
	})
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
			fmt.Fprintf(warn, "demesne-mcp: warning: %s: %q does not exist, and is ignored\n", varPaths, dir)
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
