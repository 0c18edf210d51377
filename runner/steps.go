package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"
)

// Step is one command of a list. The commands of a list run in one sandbox, one after the other, until one fails.
type Step struct {
	Argv         []string      // /bin/sh -c TEXT for shell text
	Env          []string      `json:",omitempty"` // NAME=VALUE
	Dir          string        `json:",omitempty"` // absolute, in the sandbox; empty: the request's
	Timeout      time.Duration `json:",omitempty"` // 0: the request's
	AllowFailure bool          `json:",omitempty"` // the next one runs even if this one fails
}

// Bounds of a list.
const (
	mostSteps     = 1000
	longestStep   = 24 * time.Hour
	mostVariables = 1000
)

// wireStep is a command as callers write it. shell and argv exclude each other.
type wireStep struct {
	Shell        json.RawMessage `json:"shell"` // text; false, null and "" mean no shell
	Argv         []string        `json:"argv"`
	Cwd          string          `json:"cwd"`
	Env          json.RawMessage `json:"env"` // an object, or a list of NAME=VALUE
	TimeoutMS    float64         `json:"timeout_ms"`
	AllowFailure bool            `json:"allow_failure"`
}

// ParseSteps reads a list of commands: a JSON array of objects with shell or argv, and perhaps cwd, env, timeout_ms and
// allow_failure.
func ParseSteps(text []byte) ([]Step, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, errors.New("not a JSON array of commands")
	}
	switch {
	case len(list) == 0:
		return nil, errors.New("no command")
	case len(list) > mostSteps:
		return nil, fmt.Errorf("%d commands: at most %d", len(list), mostSteps)
	}
	steps := make([]Step, len(list))
	for i, raw := range list {
		var w wireStep
		err := strictly(raw, &w)
		if err == nil {
			steps[i], err = w.step()
		}
		if err != nil {
			return nil, fmt.Errorf("commands[%d]: %w", i, err)
		}
	}
	return steps, nil
}

// strictly decodes an object, and refuses fields that it does not know: a misspelled one would have no effect.
func strictly(raw []byte, w *wireStep) error {
	if !bytes.HasPrefix(raw, []byte("{")) {
		return errors.New("not an object with shell or argv")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	err := d.Decode(w)
	var mistyped *json.UnmarshalTypeError
	switch {
	case errors.As(err, &mistyped):
		return fmt.Errorf("%s: not %s", mistyped.Field, kindOf(mistyped.Type.Kind().String()))
	case err != nil && !errors.Is(err, io.EOF):
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// kindOf returns a kind of Go's as JSON calls it.
func kindOf(kind string) string {
	switch kind {
	case "slice":
		return "an array"
	case "float64":
		return "a number"
	case "bool":
		return "true or false"
	}
	return "a string"
}

func (w *wireStep) step() (s Step, err error) {
	shell := ""
	switch word := string(w.Shell); word {
	case "", "null", "false":
	default:
		if json.Unmarshal(w.Shell, &shell) != nil {
			return s, errors.New("shell: not a string")
		}
	}
	switch {
	case shell != "" && len(w.Argv) > 0:
		return s, errors.New("has both shell and argv")
	case shell != "":
		s.Argv = []string{"/bin/sh", "-c", shell}
	case len(w.Argv) > 0 && w.Argv[0] != "":
		s.Argv = w.Argv
	default:
		return s, errors.New("has neither shell nor argv")
	}
	if s.Env, err = variables(w.Env); err != nil {
		return s, fmt.Errorf("env: %w", err)
	}
	if w.Cwd != "" && !path.IsAbs(w.Cwd) {
		return s, fmt.Errorf("cwd: %q is not an absolute path in the sandbox", w.Cwd)
	}
	if w.TimeoutMS < 0 || w.TimeoutMS > float64(longestStep.Milliseconds()) {
		return s, fmt.Errorf("timeout_ms: not between 0 and %d", longestStep.Milliseconds())
	}
	s.Dir, s.AllowFailure = w.Cwd, w.AllowFailure
	s.Timeout = time.Duration(w.TimeoutMS * float64(time.Millisecond))
	if slices.ContainsFunc(slices.Concat(s.Argv, s.Env, []string{s.Dir}), func(v string) bool { return strings.ContainsRune(v, 0) }) {
		return s, errors.New("has a NUL byte")
	}
	return s, nil
}

// variables reads an object of strings, or a list of NAME=VALUE. It sorts an object's variables.
func variables(raw json.RawMessage) (all []string, err error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var table map[string]string
	if json.Unmarshal(raw, &table) == nil {
		for name, value := range table {
			all = append(all, name+"="+value)
		}
		slices.Sort(all)
	} else if json.Unmarshal(raw, &all) != nil {
		return nil, errors.New("neither an object of strings nor a list of NAME=VALUE")
	}
	if len(all) > mostVariables {
		return nil, fmt.Errorf("%d variables: at most %d", len(all), mostVariables)
	}
	for _, v := range all {
		if name, _, found := strings.Cut(v, "="); name == "" || !found {
			return nil, fmt.Errorf("%q is not NAME=VALUE", v)
		}
	}
	return all, nil
}

// Text returns a command for people: the text of a shell command, else its words.
func (s *Step) Text() string {
	if len(s.Argv) == 3 && s.Argv[0] == "/bin/sh" && s.Argv[1] == "-c" {
		return s.Argv[2]
	}
	return strings.Join(s.Argv, " ")
}

// Command returns the command of a step in a sandbox. Fields that the step does not set are base's.
func (s *Step) Command(base Command) Command {
	base.Argv, base.Else = s.Argv, nil
	base.Env = slices.Concat(base.Env, s.Env)
	if s.Dir != "" {
		base.Dir = s.Dir
	}
	if s.Timeout > 0 {
		base.Timeout = s.Timeout
	}
	return base
}
