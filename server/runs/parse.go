package runs

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"strings"
	"time"

	"demesne/internal/lazy"
)

// Bounds of a request.
const (
	maxArguments = 2 << 20 // bytes
	maxCommands  = 1000
	maxVariables = 1000
	maxWord      = 128<<10 - 1 // the kernel's limit for one argument or variable, with its NUL
	maxTime      = 24 * time.Hour
)

// Defaults of a request.
const (
	commandTime = 120 * time.Second
	awaitTime   = 30 * time.Second
	maxAwait    = 24 * time.Hour
	ttlDefault  = time.Hour
	maxTTL      = 7 * 24 * time.Hour
	workDir     = "/workspace"
)

var identifiers = lazy.Regexp{Expr: `^[a-zA-Z0-9_-]{1,36}$`}

// CheckIdentifier validates a caller's name for a sandbox.
func CheckIdentifier(name string) error {
	if !identifiers.Get().MatchString(name) {
		return fmt.Errorf("identifier must match %s", identifiers.Get())
	}
	return nil
}

// Arguments are the arguments of the tool run_sandbox.
type arguments struct {
	Identifier string        `json:"identifier"`
	Commands   []wireCommand `json:"commands"`
	Options    struct {
		TTL       float64   `json:"ttl_seconds"`
		Cwd       string    `json:"default_cwd"`
		Env       variables `json:"default_env"`
		User      string    `json:"as_user"`
		GoOn      bool      `json:"continue_on_error"`
		Lock      bool      `json:"lock_sandbox"`
		Await     bool      `json:"await_completion"`
		AwaitTime float64   `json:"await_timeout_ms"`
	} `json:"options"`
}

type wireCommand struct {
	Shell        shellText `json:"shell"`
	Argv         []string  `json:"argv"`
	Cwd          string    `json:"cwd"`
	Env          variables `json:"env"`
	Timeout      float64   `json:"timeout_ms"`
	AllowFailure bool      `json:"allow_failure"`
}

// shellText is the argument shell. Some clients send false instead of omitting it.
type shellText string

func (s *shellText) UnmarshalJSON(b []byte) error {
	if string(b) == "false" || string(b) == "null" {
		return nil
	}
	return json.Unmarshal(b, (*string)(s))
}

// variables is an object of strings, or a list of NAME=VALUE.
type variables map[string]string

func (v *variables) UnmarshalJSON(b []byte) error {
	var list []string
	if json.Unmarshal(b, &list) != nil {
		return json.Unmarshal(b, (*map[string]string)(v))
	}
	*v = variables{}
	for _, word := range list {
		name, value, ok := strings.Cut(word, "=")
		if !ok {
			return fmt.Errorf("%q is not NAME=VALUE", word)
		}
		(*v)[name] = value
	}
	return nil
}

// Parse reads the arguments of the tool run_sandbox. Unknown ones are ignored.
func Parse(raw []byte) (*Request, error) {
	var a arguments
	if len(raw) > maxArguments {
		return nil, fmt.Errorf("more than %d bytes", maxArguments)
	}
	if err := json.Unmarshal(raw, &a); err != nil {
		return nil, mistyped(err)
	}
	if err := CheckIdentifier(a.Identifier); err != nil {
		return nil, err
	}
	if n := len(a.Commands); n == 0 || n > maxCommands {
		return nil, fmt.Errorf("commands must have 1 to %d entries", maxCommands)
	}
	r := &Request{Identifier: a.Identifier, TTL: ttlOf(a.Options.TTL), GoOn: a.Options.GoOn, Lock: a.Options.Lock}
	switch a.Options.User {
	case "":
	case "sandbox":
		r.Plain = true
	case "root":
		r.Root = true
	default:
		return nil, errors.New("options.as_user must be sandbox or root")
	}
	if a.Options.Await {
		if r.Await = within(a.Options.AwaitTime, time.Millisecond, maxAwait); r.Await == 0 {
			r.Await = awaitTime
		}
	}
	for i := range a.Commands {
		s, err := a.Commands[i].step(a.Options.Cwd, a.Options.Env)
		if err != nil {
			return nil, fmt.Errorf("commands[%d]: %w", i, err)
		}
		r.Commands = append(r.Commands, s)
	}
	return r, nil
}

// ParseTTL reads the argument ttl_seconds of another tool.
func ParseTTL(raw []byte) (identifier string, ttl time.Duration, err error) {
	var a struct {
		Identifier string `json:"identifier"`
		Options    struct {
			TTL float64 `json:"ttl_seconds"`
		} `json:"options"`
	}
	if err := json.Unmarshal(raw, &a); err != nil {
		return "", 0, mistyped(err)
	}
	return a.Identifier, ttlOf(a.Options.TTL), CheckIdentifier(a.Identifier)
}

// mistyped explains an error of package json to its caller.
func mistyped(err error) error {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s: a %s is not expected here", e.Field, e.Value)
	}
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}

func ttlOf(seconds float64) time.Duration {
	if ttl := within(seconds, time.Second, maxTTL); ttl > 0 {
		return ttl
	}
	return ttlDefault
}

// within returns n units, at most most. What is not a positive number becomes 0.
func within(n float64, unit, most time.Duration) time.Duration {
	if !(n > 0) {
		return 0
	}
	return max(time.Duration(min(n, float64(most/unit))*float64(unit)), 1)
}

// step checks a command, and gives it the defaults of its run.
func (w *wireCommand) step(cwd string, env variables) (s Step, err error) {
	s = Step{Shell: strings.TrimSpace(string(w.Shell)), Argv: w.Argv, Cwd: w.Cwd, AllowFailure: w.AllowFailure}
	if s.Shell != "" && len(s.Argv) > 0 { // some clients send the name of a shell, and the words
		s.Shell, s.Argv = strings.Join(s.Argv, " "), nil
	}
	if s.Shell == "" && (len(s.Argv) == 0 || s.Argv[0] == "") {
		return s, errors.New("must have shell or argv")
	}
	if s.Cwd == "" {
		s.Cwd = cwd
	}
	if s.Cwd == "" {
		s.Cwd = workDir
	}
	if !path.IsAbs(s.Cwd) {
		return s, errors.New("cwd must be absolute")
	}
	if w.Timeout < 0 || w.Timeout > float64(maxTime.Milliseconds()) {
		return s, errors.New("timeout_ms out of range")
	}
	if s.TimeoutMS = within(w.Timeout, time.Millisecond, maxTime).Milliseconds(); w.Timeout == 0 {
		s.TimeoutMS = commandTime.Milliseconds()
	}
	s.TimeoutMS = max(s.TimeoutMS, 1)
	s.Env = map[string]string{}
	maps.Copy(s.Env, env)
	maps.Copy(s.Env, w.Env)
	return s, s.check()
}

// check refuses words that no command can have.
func (s *Step) check() error {
	if len(s.Env) > maxVariables {
		return fmt.Errorf("more than %d variables", maxVariables)
	}
	words := append([]string{s.Shell, s.Cwd}, s.Argv...)
	for name, value := range s.Env {
		if name == "" || strings.Contains(name, "=") {
			return fmt.Errorf("%q is not the name of a variable", name)
		}
		words = append(words, name+"="+value)
	}
	for _, w := range words {
		if len(w) > maxWord || strings.ContainsRune(w, 0) {
			return errors.New("a word has a NUL byte, or is too long")
		}
	}
	return nil
}
