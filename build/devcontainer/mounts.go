package devcontainer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Mount is a file or directory of the workspace at a path of the sandbox.
type Mount struct {
	Source   string // relative to the workspace; "." is the workspace
	Target   string
	ReadOnly bool
}

// mount is a mount as written: "source=S,target=T,type=bind", or an object with these members.
type mount struct {
	kind, source, target string
	readOnly, none       bool // none: the empty string
}

func (m *mount) UnmarshalJSON(raw []byte) error {
	if raw[0] == '{' {
		var o struct {
			Type, Source, Target string
			ReadOnly             bool
		}
		if err := json.Unmarshal(raw, &o); err != nil {
			return err
		}
		*m = mount{kind: o.Type, source: o.Source, target: o.Target, readOnly: o.ReadOnly}
		return nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	return m.parse(s)
}

// parse parses docker's form of --mount.
func (m *mount) parse(s string) error {
	if m.none = s == ""; m.none {
		return nil
	}
	for field := range strings.SplitSeq(s, ",") {
		name, value, given := strings.Cut(strings.TrimSpace(field), "=")
		switch name {
		case "type":
			m.kind = value
		case "source", "src":
			m.source = value
		case "target", "dst", "destination":
			m.target = value
		case "readonly", "ro":
			m.readOnly = !given || value == "true" || value == "1"
		case "consistency", "bind-propagation", "volume-opt", "volume-driver", "volume-nocopy", "volume-label", "tmpfs-size", "tmpfs-mode", "external", "":
		default:
			return fmt.Errorf("unknown word %q", name)
		}
	}
	return nil
}

var errOutside = errors.New("is outside of the workspace, and a devcontainer.json gets nothing else of this machine")

// within returns a path of this machine relative to the workspace.
func (p Place) within(name string) (string, error) {
	if strings.HasPrefix(name, "~") {
		return "", fmt.Errorf("%q %w", name, errOutside)
	}
	rel := filepath.Clean(name)
	if filepath.IsAbs(rel) {
		var err error
		if rel, err = filepath.Rel(p.Dir, rel); err != nil {
			return "", fmt.Errorf("%q %w", name, errOutside)
		}
	}
	if !filepath.IsLocal(rel) {
		return "", fmt.Errorf("%q %w", name, errOutside)
	}
	return rel, nil
}

// workspace says where the workspace is in the sandbox.
func (p *Plan) workspace(f *File) error {
	if p.service != nil {
		return p.composed(f)
	}
	name := path.Join("/workspaces", filepath.Base(p.values.place.Dir))
	p.values.container = name
	target := p.values.inside(f.WorkspaceFolder)
	if m := f.WorkspaceMount; m == nil || m.none {
		if target == "" {
			target = name
		}
		p.Dir, p.values.container = path.Clean(target), path.Clean(target)
		if m == nil {
			p.Mounts = append(p.Mounts, Mount{Source: ".", Target: p.Dir})
		}
		return p.absolute("workspaceFolder", p.Dir)
	}
	m := *f.WorkspaceMount
	m.target = path.Clean(p.values.inside(m.target))
	if err := p.absolute("workspaceMount", m.target); err != nil {
		return err
	}
	if target == "" {
		target = m.target
	}
	p.Dir, p.values.container = path.Clean(target), path.Clean(target)
	if m.kind != "bind" && m.kind != "" {
		return fmt.Errorf("workspaceMount: type %q is not supported, only bind", m.kind)
	}
	source, err := p.values.place.within(p.values.outside(m.source))
	if err != nil {
		return fmt.Errorf("workspaceMount: %w", err)
	}
	p.Mounts = append(p.Mounts, Mount{source, m.target, m.readOnly})
	return p.absolute("workspaceFolder", p.Dir)
}

// composed takes the directory of a service, whose volumes mount the workspace.
func (p *Plan) composed(f *File) error {
	if f.WorkspaceMount != nil {
		return errors.New("workspaceMount: the compose file has the mounts")
	}
	p.Dir = path.Clean(cmp.Or(p.values.inside(f.WorkspaceFolder), p.service.dir, "/"))
	p.values.container = p.Dir
	if len(p.Mounts) == 0 {
		p.note("%s: no volume mounts the workspace", path.Base(p.service.name))
	}
	return p.absolute("workspaceFolder", p.Dir)
}

func (p *Plan) absolute(what, target string) error {
	if !path.IsAbs(target) {
		return fmt.Errorf("%s: %q is not an absolute path", what, target)
	}
	return nil
}

// mounts adds the mounts of the file.
func (p *Plan) mounts(f *File) error {
	for _, m := range f.Mounts {
		m.source, m.target = p.values.outside(m.source), p.values.inside(m.target)
		if err := p.mount("mounts", m); err != nil {
			return err
		}
	}
	return nil
}

// mount adds a mount whose variables are expanded. The caller's own mount at the same place replaces it.
func (p *Plan) mount(what string, m mount) error {
	target := path.Clean(m.target)
	if err := p.absolute(what, target); err != nil {
		return err
	}
	if slices.Contains(p.values.place.Mounted, target) {
		return nil
	}
	switch m.kind {
	case "volume":
		p.note("%s: %s is an empty directory in memory, not the volume %q; --mount SRC:%s:rw gives a directory", what, target, m.source, target)
		p.Tmpfs = append(p.Tmpfs, target)
	case "tmpfs":
		p.Tmpfs = append(p.Tmpfs, target)
	case "bind", "":
		source, err := p.values.place.within(m.source)
		if err != nil {
			return p.outsideMount(what, target, err)
		}
		p.Mounts = append(p.Mounts, Mount{source, target, m.readOnly})
	default:
		return fmt.Errorf("%s: type %q is not supported, only bind, volume and tmpfs", what, m.kind)
	}
	return nil
}

// outsideMount is the error for a mount of another directory, unless the caller gives one at its target.
func (p *Plan) outsideMount(what, target string, err error) error {
	if slices.Contains(p.values.place.Mounted, target) {
		return nil
	}
	return &Refused{fmt.Errorf("%s: %w", what, err), fmt.Sprintf("--mount SRC:%s on the command line gives a directory of your choice", target)}
}
