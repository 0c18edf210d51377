package devcontainer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// File is a parsed devcontainer.json, or one element of an image's metadata.
type File struct {
	settings
	own map[string]json.RawMessage // what it has, as written
}

// settings are the properties that decide about a sandbox.
type settings struct {
	Image           string
	Build           *build
	DockerFile      string // the older form of Build
	Context         string
	WorkspaceFolder string
	WorkspaceMount  *mount
	Mounts          []mount
	ContainerEnv    map[string]text
	RemoteEnv       map[string]*text // nil: unset
	ContainerUser   string
	RemoteUser      string
	ForwardPorts    []text
	AppPort         texts
	RunArgs         []string
	Features        map[string]json.RawMessage
	HostRequirements

	OverrideFeatureInstallOrder []string
	DockerComposeFile           texts
	Service                     string

	hooks map[string]hook
}

type build struct {
	Dockerfile string          `json:"dockerfile"`
	Context    string          `json:"context"`
	Target     string          `json:"target"`
	Args       map[string]text `json:"args"`
	Options    []string        `json:"options"`
}

// parse parses a devcontainer.json.
func parse(raw []byte) (*File, error) {
	f := &File{}
	if err := decode(raw, &f.own); err != nil {
		return nil, err
	}
	if f.own == nil {
		return nil, errors.New("not an object")
	}
	return f, f.fill()
}

// fill takes the properties out of f.own. Their names are case-sensitive.
func (f *File) fill() error {
	s := &f.settings
	for name, to := range map[string]any{
		"image": &s.Image, "build": &s.Build, "dockerFile": &s.DockerFile, "context": &s.Context,
		"workspaceFolder": &s.WorkspaceFolder, "workspaceMount": &s.WorkspaceMount, "mounts": &s.Mounts,
		"containerEnv": &s.ContainerEnv, "remoteEnv": &s.RemoteEnv, "containerUser": &s.ContainerUser, "remoteUser": &s.RemoteUser,
		"forwardPorts": &s.ForwardPorts, "appPort": &s.AppPort, "runArgs": &s.RunArgs, "hostRequirements": &s.HostRequirements,
		"features": &s.Features, "overrideFeatureInstallOrder": &s.OverrideFeatureInstallOrder,
		"dockerComposeFile": &s.DockerComposeFile, "service": &s.Service,
	} {
		if raw, ok := f.own[name]; ok {
			if err := json.Unmarshal(raw, to); err != nil {
				return fmt.Errorf("%s: %w", name, plainly(err))
			}
		}
	}
	s.hooks = map[string]hook{}
	for _, name := range stages {
		if raw, ok := f.own[name]; ok {
			var h hook
			if err := json.Unmarshal(raw, &h); err != nil {
				return fmt.Errorf("%s: %w", name, plainly(err))
			}
			s.hooks[name] = h
		}
	}
	return f.check()
}

// plainly leaves out the names of Go's types.
func plainly(err error) error {
	var kind *json.UnmarshalTypeError
	if !errors.As(err, &kind) {
		return err
	}
	if kind.Field != "" {
		return fmt.Errorf("%s: %s is not allowed here", kind.Field, kind.Value)
	}
	return fmt.Errorf("%s is not allowed here", kind.Value)
}

// has reports whether the file has a property with a value that is not empty, false or null.
func (f *File) has(name string) bool {
	switch raw := bytes.TrimSpace(f.own[name]); string(bytes.Join(bytes.Fields(raw), nil)) {
	case "", "null", "false", "[]", "{}", `""`:
		return false
	}
	return true
}

// check refuses values that no sandbox can have: variables with bad names, and NUL bytes.
func (f *File) check() error {
	for _, raw := range f.own {
		if bytes.Contains(raw, []byte(`\u0000`)) {
			return errors.New("has a NUL character")
		}
	}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(f.ContainerEnv)), slices.Collect(maps.Keys(f.RemoteEnv))) {
		if name == "" || strings.Contains(name, "=") {
			return fmt.Errorf("variable %q: not a name", name)
		}
	}
	return nil
}

// text is a string. A number or a boolean is read as its text.
type text string

func (t *text) UnmarshalJSON(raw []byte) error {
	switch c := raw[0]; {
	case c == '"':
		return json.Unmarshal(raw, (*string)(t))
	case c == '{' || c == '[':
		return errors.New("a list or an object is not allowed here")
	case string(raw) != "null":
		*t = text(raw)
	}
	return nil
}

// texts is a text, or a list of them.
type texts []string

func (t *texts) UnmarshalJSON(raw []byte) error {
	if raw[0] != '[' {
		raw = slices.Concat([]byte("["), raw, []byte("]"))
	}
	var all []text
	if err := json.Unmarshal(raw, &all); err != nil {
		return err
	}
	for _, one := range all {
		*t = append(*t, string(one))
	}
	return nil
}

// hook has the commands of one stage. With several, they are executed at the same time.
type hook []command

// command is a shell text, or arguments.
type command struct {
	name  string // of one in an object
	shell string
	argv  []string
}

func (h *hook) UnmarshalJSON(raw []byte) error {
	if raw[0] != '{' {
		c, err := commandOf("", raw)
		if err == nil && !c.empty() {
			*h = hook{c}
		}
		return err
	}
	var several map[string]json.RawMessage
	if err := json.Unmarshal(raw, &several); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(several)) {
		c, err := commandOf(name, several[name])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if !c.empty() {
			*h = append(*h, c)
		}
	}
	return nil
}

func commandOf(name string, raw []byte) (c command, err error) {
	c.name = name
	switch raw[0] {
	case '"':
		err = json.Unmarshal(raw, &c.shell)
	case '[':
		err = json.Unmarshal(raw, &c.argv)
	default:
		if string(raw) != "null" {
			err = errors.New("not a string, a list of strings, or an object of these")
		}
	}
	return c, err
}

func (c command) empty() bool { return strings.TrimSpace(c.shell) == "" && len(c.argv) == 0 }
