package devcontainer

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Place is what this machine provides to a devcontainer.json.
type Place struct {
	Dir     string                            // the workspace, without symbolic links
	File    string                            // the devcontainer.json, relative to Dir
	Env     func(name string) (string, bool)  // the variables for ${localEnv:NAME}; nil: none
	Mounted []string                          // targets of the caller's own mounts
	Read    func(name string) ([]byte, error) // reads a file of the workspace, for a compose file; nil: none
}

// Plan says what a sandbox has. Env, User, AsRoot and the hooks are complete after [Plan.Image].
type Plan struct {
	Name   string // of the image; empty: see Build
	Build  *Build
	Dir    string // to start in
	Mounts []Mount
	Tmpfs  []string
	User   string   // by name or id
	AsRoot bool     // commands are root's, with the home of User: see [Plan.Image]
	Env    []string // NAME=VALUE
	Ports  []string // that the file asks to forward
	Needs  HostRequirements
	Notes  []string // what was left out, and why

	file     *File
	service  *service   // of a compose file; may be nil
	features []*feature // in the order of their installation
	values   values
	hooks    map[string][]command
}

// Build is an image that is built. File and Context are relative to the workspace, and do not leave it by their names.
type Build struct {
	File, Context, Target string
	Args                  []string // NAME=VALUE, sorted
}

// HostRequirements are what the machine should have, such as "8gb" for memory.
type HostRequirements struct {
	CPUs    float64         `json:"cpus"`
	Memory  text            `json:"memory"`
	Storage text            `json:"storage"`
	GPU     json.RawMessage `json:"gpu"`
}

// Refused is an error with a hint.
type Refused struct {
	Err  error
	Hint string
}

func (r *Refused) Error() string { return r.Err.Error() }

func (r *Refused) Unwrap() error { return r.Err }

// beside returns a path that is relative to the devcontainer.json, relative to the workspace.
func (p *Plan) beside(name string) (string, error) {
	full, err := p.values.required("path", name, p.values.outside)
	if err != nil {
		return "", err
	}
	if !path.IsAbs(full) {
		full = path.Join(path.Dir(p.values.place.File), full)
	}
	rel, err := p.values.place.within(full)
	if err != nil {
		err = fmt.Errorf("%q %w", name, errOutside)
	}
	return rel, err
}

func (p *Plan) note(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	switch {
	case len(p.Notes) > maxNotes || slices.Contains(p.Notes, line):
	case len(p.Notes) == maxNotes:
		p.Notes = append(p.Notes, "there are more notes")
	default:
		p.Notes = append(p.Notes, line)
	}
}

// Hooks reports whether commands are executed before the caller's. It is known after Image.
func (p *Plan) Hooks() bool { return len(p.hooks) > 0 }

// Has is what an image's configuration says.
type Has struct {
	Metadata string   // the value of MetadataLabel
	Env      []string // NAME=VALUE
	User     string
}

// Lacks returns a line for each requirement that a machine does not fulfil. Sizes are in bytes.
func (h HostRequirements) Lacks(cpus int, memory, storage uint64) (lines []string) {
	if h.CPUs > float64(cpus) {
		lines = append(lines, fmt.Sprintf("hostRequirements: cpus: %v, and this machine has %d", h.CPUs, cpus))
	}
	for _, c := range []struct {
		name string
		need text
		has  uint64
	}{{"memory", h.Memory, memory}, {"storage", h.Storage, storage}} {
		need, err := size(string(c.need))
		switch {
		case err != nil:
			lines = append(lines, fmt.Sprintf("hostRequirements: %s: %v", c.name, err))
		case need > c.has:
			lines = append(lines, fmt.Sprintf("hostRequirements: %s: %s, and this machine has %d MiB", c.name, c.need, c.has>>20))
		}
	}
	if gpu := string(h.GPU); gpu != "" && gpu != "false" && gpu != "null" && gpu != `"optional"` {
		lines = append(lines, "hostRequirements: gpu: a sandbox has none")
	}
	return lines
}

// size parses a number with tb, gb, mb or kb.
func size(s string) (uint64, error) {
	number, shift := strings.ToLower(s), 0
	for i, unit := range []string{"kb", "mb", "gb", "tb"} {
		if n, ok := strings.CutSuffix(number, unit); ok {
			number, shift = n, 10*(i+1)
			break
		}
	}
	if number == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 63-shift)
	if err != nil {
		return 0, fmt.Errorf("%q is not a size (such as 8gb)", s)
	}
	return n << shift, nil
}
