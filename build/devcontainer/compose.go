package devcontainer

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"demesne/internal/lazy"
)

// service is the one service of a compose file.
type service struct {
	plan *Plan
	name string // of the compose file, relative to the workspace

	image string
	build *Build
	dir   string // working_dir
	file  File   // environment and user, as a devcontainer.json would have them
}

// compose reads the service of the compose file that f names. A sandbox is one environment, so there is one service.
func (p *Plan) compose(f *File) error {
	if f.Image != "" || f.Build != nil || f.DockerFile != "" {
		return errors.New("both an image or a build, and a dockerComposeFile")
	}
	if len(f.DockerComposeFile) != 1 {
		return fmt.Errorf("dockerComposeFile: %d files: merging is not supported", len(f.DockerComposeFile))
	}
	given := f.DockerComposeFile[0]
	p.values.container = "/"
	name, err := p.beside(given)
	if err != nil {
		return fmt.Errorf("dockerComposeFile: %w", err)
	}
	var text []byte
	if err = errors.ErrUnsupported; p.values.place.Read != nil {
		text, err = p.values.place.Read(name)
	}
	s := &service{plan: p, name: name}
	if err == nil {
		err = s.parse(text, f.Service)
	}
	if err != nil {
		return fmt.Errorf("dockerComposeFile %q: %w", given, err)
	}
	p.service = s
	return nil
}

// A setter takes the value of a key.
type setter func(*node) error

// each calls the setter of each key, and refuses keys without one.
func each(n *node, what string, set map[string]setter) error {
	if n.kind != table {
		return at(n.line, "%s: a mapping is expected, not %v", what, n.kind)
	}
	for _, m := range n.keys {
		do, known := set[m.key]
		if !known {
			return &Refused{at(m.line, "%s: %s: not supported", what, m.key), "leave it out, or name an image, or a Dockerfile in build, in the devcontainer.json"}
		}
		if do == nil {
			continue
		}
		if err := do(m.value); err != nil {
			if _, ok := errors.AsType[*yamlError](err); ok {
				return err
			}
			return at(m.line, "%s: %s: %w", what, m.key, err)
		}
	}
	return nil
}

func (s *service) parse(text []byte, name string) error {
	top, err := parseYAML(text)
	if err != nil {
		return err
	}
	var services *node
	err = each(top, "the file", map[string]setter{
		"version": nil, "name": nil, "volumes": unset,
		"services": func(n *node) error { services = n; return nil },
	})
	switch {
	case err != nil:
		return err
	case services == nil || services.kind != table:
		return errors.New("has no services")
	case len(services.keys) > 1:
		var names []string
		for _, m := range services.keys {
			names = append(names, m.key)
		}
		return &Refused{at(services.keys[1].line, "several services: %s: a sandbox is one environment", strings.Join(names, ", ")), "name an image, or a Dockerfile in build, in the devcontainer.json"}
	case name != "" && services.keys[0].key != name:
		return fmt.Errorf("has no service %q, only %q", name, services.keys[0].key)
	}
	return s.take(services.keys[0].value, services.keys[0].key)
}

// unset accepts named volumes that say nothing of themselves.
func unset(n *node) error {
	if n.kind == none {
		return nil
	}
	if n.kind != table {
		return fmt.Errorf("a mapping is expected, not %v", n.kind)
	}
	for _, m := range n.keys {
		if m.value.kind != none && (m.value.kind != table || len(m.value.keys) > 0) {
			return at(m.line, "volumes: %s: options are not supported", m.key)
		}
	}
	return nil
}

func (s *service) take(n *node, name string) error {
	what := "services: " + name
	if err := s.expand(n); err != nil {
		return err
	}
	env := func(n *node) (err error) {
		s.file.ContainerEnv, err = s.variables(n)
		return err
	}
	err := each(n, what, map[string]setter{
		"image": textOf(&s.image), "build": s.setBuild, "environment": env, "working_dir": textOf(&s.dir), "user": textOf(&s.file.ContainerUser),
		"volumes": s.setVolumes, "command": s.setCommand,
	})
	switch {
	case err != nil:
		return err
	case s.image == "" && s.build == nil:
		return at(n.line, "%s: neither an image nor a build", what)
	case s.dir != "" && !path.IsAbs(s.dir):
		return at(n.line, "%s: working_dir: %q is not an absolute path", what, s.dir)
	}
	return s.file.check()
}

// textOf returns the setter of a text.
func textOf(to *string) setter {
	return func(n *node) error {
		if n.kind != word {
			return fmt.Errorf("a text is expected, not %v", n.kind)
		}
		*to = n.text
		return nil
	}
}

// variable is a variable of a compose file: $$, $NAME, ${NAME}, or one with a default. Others begin with $ as well.
var composeVariable = lazy.Regexp{Expr: `\$(?:\$|([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)(?:(:?)-([^{}$]*))?\}|)`}

// expand replaces the variables of all texts by those that the caller gave.
func (s *service) expand(n *node) error {
	if n.kind == word {
		var err error
		n.text = composeVariable.Get().ReplaceAllStringFunc(n.text, func(found string) string {
			value, e := s.variable(found)
			err = cmp.Or(err, e)
			return value
		})
		if s.plan.values.used += len(n.text); err == nil {
			err = s.plan.values.err()
		}
		if err != nil {
			return at(n.line, "%w", err)
		}
	}
	for _, item := range n.items {
		if err := s.expand(item); err != nil {
			return err
		}
	}
	for _, m := range n.keys {
		if err := s.expand(m.value); err != nil {
			return err
		}
	}
	return nil
}

// variable returns the value of one variable, as it stands in the file.
func (s *service) variable(found string) (string, error) {
	m := composeVariable.Get().FindStringSubmatch(found)
	name := cmp.Or(m[1], m[2])
	switch {
	case found == "$$":
		return "$", nil
	case name == "":
		return "", errors.New(`a "$" that begins no variable; "$$" stands for one`)
	}
	value, given := s.given(name)
	switch {
	case given && (value != "" || m[3] == ""):
		return value, nil
	case strings.Contains(found, "-"):
		return m[4], nil
	}
	s.plan.note("%s: ${%s} is not given; demesne run --env %s gives it", path.Base(s.name), name, name)
	return "", nil
}

func (s *service) given(name string) (string, bool) {
	if s.plan.values.place.Env == nil {
		return "", false
	}
	return s.plan.values.place.Env(name)
}

// variables takes NAME: VALUE, or a list of NAME=VALUE. A NAME without a value is a variable of the caller.
func (s *service) variables(n *node) (map[string]text, error) {
	all := map[string]text{}
	add := func(line int, name, value string, set bool) error {
		if _, again := all[name]; again || name == "" {
			return at(line, "%q: not a name, or a second value", name)
		}
		if !set {
			if value, set = s.given(name); !set {
				s.plan.note("%s: %s is not given; demesne run --env %s gives it", path.Base(s.name), name, name)
				return nil
			}
		}
		all[name] = text(value)
		return nil
	}
	switch n.kind {
	case list:
		for _, item := range n.items {
			if item == nil || item.kind != word {
				return nil, at(item.line, "NAME=VALUE is expected")
			}
			name, value, set := strings.Cut(item.text, "=")
			if err := add(item.line, name, value, set); err != nil {
				return nil, err
			}
		}
	case table:
		for _, m := range n.keys {
			if m.value.kind != word && m.value.kind != none {
				return nil, at(m.line, "%s: a text is expected, not %v", m.key, m.value.kind)
			}
			if err := add(m.line, m.key, m.value.text, m.value.kind == word); err != nil {
				return nil, err
			}
		}
	case word:
		return nil, errors.New("a mapping or a list is expected")
	}
	return all, nil
}

// setBuild takes a build: its context, or a mapping. The Dockerfile is relative to the context.
func (s *service) setBuild(n *node) error {
	context, file, b := ".", "Dockerfile", &Build{}
	if n.kind == word {
		context = n.text
	} else {
		args := func(n *node) error {
			all, err := s.variables(n)
			for name, value := range all {
				b.Args = append(b.Args, name+"="+string(value))
			}
			slices.Sort(b.Args)
			return err
		}
		err := each(n, "build", map[string]setter{"context": textOf(&context), "dockerfile": textOf(&file), "args": args, "target": textOf(&b.Target)})
		if err != nil {
			return err
		}
	}
	if strings.Contains(context, ":") || strings.HasPrefix(context, "git@") {
		return fmt.Errorf("context %q: only a directory of the workspace is supported", context)
	}
	var err error
	if b.Context, err = s.within(context); err != nil {
		return err
	}
	if !path.IsAbs(file) {
		file = path.Join(b.Context, file)
	}
	if b.File, err = s.plan.values.place.within(file); err == nil {
		s.build = b
	}
	return err
}

// within returns a path of the file, which is relative to the file's directory, relative to the workspace.
func (s *service) within(name string) (string, error) {
	if !path.IsAbs(name) && !strings.HasPrefix(name, "~") {
		name = path.Join(path.Dir(s.name), name)
	}
	return s.plan.values.place.within(name)
}

// setCommand notes that the command is not executed.
func (s *service) setCommand(n *node) error {
	if n.kind == table {
		return errors.New("a text or a list is expected")
	}
	if n.kind != none {
		s.plan.note("%s: command: not executed: the command line has the command", path.Base(s.name))
	}
	return nil
}

func (s *service) setVolumes(n *node) error {
	if n.kind != list {
		return fmt.Errorf("a list is expected, not %v", n.kind)
	}
	for _, item := range n.items {
		m, err := volumeOf(item)
		if err == nil {
			err = s.mount(m)
		}
		if err != nil {
			if _, ok := errors.AsType[*yamlError](err); ok {
				return err
			}
			return at(item.line, "%w", err)
		}
	}
	return nil
}

// volumeOf parses SOURCE:TARGET:OPTIONS, a TARGET alone, or a mapping.
func volumeOf(n *node) (m mount, err error) {
	if n.kind == table {
		readOnly := ""
		err := each(n, "volumes", map[string]setter{"type": textOf(&m.kind), "source": textOf(&m.source), "target": textOf(&m.target),
			"read_only": textOf(&readOnly), "consistency": nil})
		m.readOnly = readOnly == "true"
		if err == nil && readOnly != "" && readOnly != "true" && readOnly != "false" {
			err = fmt.Errorf("volumes: read_only: %q is neither true nor false", readOnly)
		}
		return m, err
	}
	if n.kind != word {
		return m, fmt.Errorf("volumes: a text or a mapping is expected, not %v", n.kind)
	}
	parts := strings.Split(n.text, ":")
	switch len(parts) {
	case 1:
		return mount{kind: "tmpfs", target: parts[0]}, nil
	case 2:
		parts = append(parts, "")
	case 3:
	default:
		return m, fmt.Errorf("volumes: %q: not SOURCE:TARGET:OPTIONS", n.text)
	}
	m = mount{kind: "volume", source: parts[0], target: parts[1]}
	if strings.ContainsAny(m.source[:min(1, len(m.source))], "./~") {
		m.kind = "bind"
	}
	for option := range strings.SplitSeq(parts[2], ",") {
		switch option {
		case "ro":
			m.readOnly = true
		case "", "rw", "cached", "delegated", "consistent", "z", "Z", "nocopy":
		default:
			return m, fmt.Errorf("volumes: %q: unknown option %q", n.text, option)
		}
	}
	return m, nil
}

// mount adds a volume. The directory above the workspace stands for the workspace in it, as templates have it.
func (s *service) mount(m mount) error {
	if m.kind == "" || !path.IsAbs(m.target) {
		return fmt.Errorf("volumes: %q: no type, or no absolute path", m.target)
	}
	if m.kind == "bind" {
		above := m.source
		if !path.IsAbs(above) {
			above = path.Join(s.plan.values.place.Dir, path.Dir(s.name), above)
		}
		if base := filepath.Base(s.plan.values.place.Dir); path.Clean(above) == path.Dir(s.plan.values.place.Dir) && !strings.HasPrefix(m.source, "~") {
			s.plan.note("%s: volumes: of %q, only the workspace is mounted, at %s", path.Base(s.name), m.source, path.Join(m.target, base))
			m.source, m.target = s.plan.values.place.Dir, path.Join(m.target, base)
		}
		rel, err := s.within(m.source)
		if err != nil {
			return s.plan.outsideMount("volumes", path.Clean(m.target), err)
		}
		m.source = path.Join(s.plan.values.place.Dir, rel)
	}
	return s.plan.mount("volumes", m)
}
