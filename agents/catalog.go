package agents

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"demesne/internal/text"
	"demesne/runner"
)

// Options are the surroundings of a Catalog. The zero Options are this process's.
type Options struct {
	Env  func(string) string // nil: os.Getenv
	Home string              // empty: os.UserHomeDir
	File string              // the user's rows; empty: $DEMESNE_AGENTS_FILE or ~/.config/demesne/agents.json
	Now  func() time.Time    // nil: time.Now

	// Post sends a JSON body to renew an OAuth token, and returns the response. nil: no token can be renewed.
	Post func(ctx context.Context, url string, body []byte) (status int, response []byte, err error)
}

// Catalog has the providers that this host can run.
type Catalog struct {
	o     Options
	rows  []Provider
	off   map[string]bool // names of disabled providers
	price []Price         // of the user's file, for the models of any row
	image string          // see In
	bare  bool            // see Bare
}

// ErrNoProgram is in the error for an agent that has a credential, and whose program this host lacks.
var ErrNoProgram = errors.New("the program is missing")

// Agent is a provider with a model and the credential that this host has for it.
type Agent struct {
	Provider Provider
	Model    string // as users name it

	inner   string // as the program names it
	cred    Credential
	o       Options
	program program
	script  string // see [Catalog.Scripted]

	given    string // the last token that Renew returned
	rejected bool   // the server refused it
}

// Format is the format of the program's output: see [NewTranscript].
func (a *Agent) Format() string { return a.Provider.Format }

// Inner is the model as the program names it.
func (a *Agent) Inner() string { return a.inner }

// Usage is the wire format of the model's interface: see [NewMeter].
func (a *Agent) Usage() string { return a.Provider.API.Usage }

// Elsewhere returns the variables by which another machine with this user's home directory finds the same agent. Its
// credential must be in a file there: the engine of a cluster writes variables to its disk.
func (c *Catalog) Elsewhere(a *Agent) (variables []string, err error) {
	if a.cred.Env != "" && a.script == "" {
		return nil, text.Hinted(fmt.Errorf("the credential in %s would be written to the cluster's disk", a.cred.Env),
			"unset it, and log in with the agent's own program, which keeps a file; or describe the agent with a \"file\" in ~/.config/demesne/agents.json")
	}
	variables = []string{varFile}
	for _, p := range c.rows {
		variables = append(variables, p.Enable, p.Tools.Env)
		for _, cred := range p.Credentials {
			variables = append(variables, cred.FileEnv, cred.BaseEnv)
		}
	}
	return variables, nil
}

// varFile names the file with the user's rows.
const varFile = "DEMESNE_AGENTS_FILE"

// Open reads the table and the user's file. It fails if the file has errors or an enable switch is not a boolean.
func Open(o Options) (*Catalog, error) {
	if o.Env == nil {
		o.Env = os.Getenv
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Home == "" {
		o.Home, _ = os.UserHomeDir()
	}
	c := &Catalog{o: o, rows: table(), off: map[string]bool{}}
	own, err := c.userRows()
	if err != nil {
		return nil, err
	}
	c.rows = append(c.rows, own...)
	for _, p := range c.rows {
		word := o.Env(p.Enable)
		if p.Enable == "" || word == "" {
			continue
		}
		on, err := strconv.ParseBool(word)
		if err != nil {
			return nil, fmt.Errorf("%s must be a valid boolean: %w", p.Enable, err)
		}
		c.off[p.Name] = !on
	}
	return c, nil
}

// Rows returns the built-in rows, followed by the rows of the user's file.
func (c *Catalog) Rows() []Provider { return slices.Clone(c.rows) }

// userRows reads the user's file, an object with the lists "agents" and "prices". A row with the name of a built-in one is refused.
func (c *Catalog) userRows() ([]Provider, error) {
	path := cmp.Or(c.o.File, c.o.Env(varFile))
	named := path != ""
	if !named {
		if c.o.Home == "" {
			return nil, nil
		}
		path = filepath.Join(c.o.Home, ".config/demesne/agents.json")
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) && !named {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read agents: %w", err)
	}
	var file struct {
		Agents []Provider
		Prices []Price
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&file); err != nil {
		return nil, fmt.Errorf("read agents: %s: %w", path, err)
	}
	for i := range file.Agents {
		p := &file.Agents[i]
		p.fill()
		if err := p.check(append(table(), file.Agents[:i]...)); err != nil {
			return nil, fmt.Errorf("read agents: %s: agent %q: %w", path, cmp.Or(p.Name, strconv.Itoa(i)), err)
		}
	}
	for _, p := range file.Prices {
		if err := p.check(); err != nil {
			return nil, fmt.Errorf("read agents: %s: %w", path, err)
		}
	}
	c.price = file.Prices
	return file.Agents, nil
}

// enabled returns the rows that are not switched off.
func (c *Catalog) enabled() (on []Provider) {
	for _, p := range c.rows {
		if !c.off[p.Name] {
			on = append(on, p)
		}
	}
	return on
}

// hostImage is the name of the host's own files in place of an image.
const hostImage = "host"

// In returns the catalog for sandboxes with an image that the caller chose. The image has the programs of the agents, and
// no installation is used. "host" uses only the host's installations. With "" no image is chosen: an agent has the
// host's installation, or else the image of its row.
func (c *Catalog) In(image string) *Catalog {
	in := *c
	in.image = image
	return &in
}

// Bare returns the catalog for calls that ask no model: an agent for which this host has no credential is no error.
func (c *Catalog) Bare() *Catalog {
	bare := *c
	bare.bare = true
	return &bare
}

// Models returns the models that can run now: the models of enabled providers whose credential this host has, and whose
// program it has or an image makes available. Installed programs precede others, each in the table's order. The first
// model is the default.
func (c *Catalog) Models() (all []string) {
	var made []string
	for _, p := range c.enabled() {
		a, err := c.agent(p, "", p.Models[0], "")
		if err == nil && a.Image() == "" {
			all = append(all, p.Models...)
		} else if err == nil {
			made = append(made, p.Models...)
		}
	}
	return append(all, made...)
}

// Tools returns the files that list the user's own MCP servers, in ascending order of preference. Each File is a path of
// this host.
func (c *Catalog) Tools() (all []Tools) {
	for _, p := range c.rows {
		t := p.Tools
		if t.File == "" {
			continue
		}
		if path := c.o.Env(t.Env); t.Env != "" && path != "" {
			t.File = path
		}
		if rest, below := strings.CutPrefix(t.File, "~/"); below {
			t.File = filepath.Join(c.o.Home, rest)
		}
		all = append([]Tools{t}, all...)
	}
	return all
}

// Prices returns the prices that the user's rows add to the table.
func (c *Catalog) Prices() (all []Price) {
	for _, p := range c.rows {
		all = append(all, p.Prices...)
	}
	return append(all, c.price...)
}

// Choose returns the agent for a model, or for the default one if model is empty. Errors name tool, the name of the
// caller's tool or command.
func (c *Catalog) Choose(tool, model string) (*Agent, error) {
	if model == "" {
		return c.standard(tool)
	}
	for _, p := range c.rows {
		inner, ok := p.owns(model)
		if !ok {
			continue
		}
		if c.off[p.Name] {
			return nil, fmt.Errorf("model %q is unavailable because agent provider %q is disabled", model, p.Name)
		}
		return c.agent(p, tool, model, inner)
	}
	var known []string
	for _, p := range c.rows {
		known = append(known, p.Models...)
	}
	slices.Sort(known)
	return nil, fmt.Errorf("model %q unknown model (known: %s)", model, strings.Join(known, ", "))
}

// standard chooses the first provider that has a credential and a program. An installed program is preferred to an image
// of a row. If none has both, the error is from the first row with a credential, else from the preferred row.
func (c *Catalog) standard(tool string) (*Agent, error) {
	var first *Provider
	var missing error
	var made *Agent
	for _, p := range c.enabled() {
		a, err := c.agent(p, tool, p.Models[0], "")
		if err == nil && a.Image() == "" {
			return a, nil
		}
		if err == nil && made == nil {
			made = a
		}
		if missing == nil && errors.Is(err, ErrNoProgram) {
			missing = err
		}
		// claude-code is the one without a default place for its credential, so its error helps most.
		if first == nil || p.Name == "claude-code" {
			first = &p
		}
	}
	if made != nil {
		return made, nil
	}
	if missing != nil {
		return nil, missing
	}
	if first == nil || (c.off["codex"] && c.off["claude-code"]) {
		return nil, errors.New("no agent providers are enabled; enable DEMESNE_CODEX_ENABLED or DEMESNE_CLAUDE_CODE_ENABLED")
	}
	return c.agent(*first, tool, first.Models[0], "")
}

// Row returns the provider of a command, such as "claude".
func (c *Catalog) Row(command string) (*Provider, error) { return c.row(command, false) }

// Speaker is Row for an agent that speaks the Agent Client Protocol.
func (c *Catalog) Speaker(command string) (*Provider, error) { return c.row(command, true) }

func (c *Catalog) row(command string, speaks bool) (*Provider, error) {
	var known []string
	for _, p := range c.rows {
		if p.Command != command && p.Name != command {
			if !speaks || p.ACP.Speaks() {
				known = append(known, p.Command)
			}
			continue
		}
		if speaks && !p.ACP.Speaks() {
			return nil, fmt.Errorf("agent %q does not speak the Agent Client Protocol", p.Name)
		}
		if c.off[p.Name] {
			return nil, fmt.Errorf("agent %q is disabled: agent provider %q", command, p.Name)
		}
		return &p, nil
	}
	return nil, fmt.Errorf("unknown agent %q (known: %s)", command, strings.Join(known, ", "))
}

// Find returns the agent of a command, such as "claude", with its default model.
func (c *Catalog) Find(command string) (*Agent, error) {
	p, err := c.Row(command)
	if err != nil {
		return nil, err
	}
	return c.agent(*p, "demesne agent "+command, p.Models[0], "")
}

func (c *Catalog) agent(p Provider, tool, model, inner string) (*Agent, error) {
	cred, err := c.o.credential(p, tool)
	if err != nil && !c.bare {
		return nil, err
	}
	if inner == "" {
		inner, _ = p.owns(model)
	}
	prog, err := c.program(p)
	if err != nil {
		return nil, fmt.Errorf("agent %q: %w: %w", p.Name, ErrNoProgram, err)
	}
	p.Retry, p.Prices = c.o.bounds(p.Retry), slices.Concat(p.Prices, c.price)
	return &Agent{Provider: p, Model: model, inner: inner, cred: cred, o: c.o, program: prog}, nil
}

// bounds applies the variables that tune retries. Values that are not positive numbers count as unset.
func (o Options) bounds(r Retry) Retry {
	number := func(name string, set func(int)) {
		if n, err := strconv.Atoi(o.Env(name)); err == nil && n > 0 {
			set(n)
		}
	}
	seconds := func(d *runner.Duration) func(int) {
		return func(n int) { *d = runner.Duration(time.Duration(n) * time.Second) }
	}
	number("RETRY_MAX_ATTEMPTS", func(n int) { r.Attempts = n })
	number("RETRY_MAX_TOTAL_WAIT_SECS", seconds(&r.Total))
	number("RETRY_RESET_BUFFER_SECS", seconds(&r.Buffer))
	number("RETRY_BACKOFF_BASE_SECS", seconds(&r.Base))
	return r
}
