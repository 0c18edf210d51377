package agents

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"demesne/runner"
)

// Task is what an agent is to do, and what its sandbox offers.
type Task struct {
	Prompt, Preamble         string
	OutputPath, OutputFormat string
	SuccessCriteria          []string

	Servers   []Server // MCP servers on the sandbox's loopback
	Inputs    []string // names in /in
	Images    []string // of these, the images that the model is to see at once
	Egress    string   // name of the egress mode, for the context file; empty: none
	Children  bool     // the server "demesne" makes child sandboxes
	Previous  bool     // /in/previous-jobs has the output of finished siblings
	Generated bool     // host tools deliver files to /workspace/generated
	Research  bool     // the whole network, and no inputs
	Project   bool     // /workspace is a directory of the user

	Dir    string  // the program's directory below /workspace; empty: /workspace
	Token  string  // see NewToken; empty: a new one
	Places *Places // nil: the sandbox has its own tree
}

// Places are the paths of the host that a sandbox without a mount namespace has in place of its own. They replace those in
// all that this package writes for the program, but not in a person's words.
type Places struct{ In, Out, Workspace, Home, Config, Previous string }

// insidePaths finds the paths of a sandbox in the texts of this package.
var insidePaths = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(^|[^\w./-])(/in/\.agent|/in/previous-jobs|/home/agent|/in|/out|/workspace)\b`)
})

// At returns text with the host's paths in place of a sandbox's. p may be nil. It is pure.
func (p *Places) At(text string) string {
	if p == nil {
		return text
	}
	to := map[string]string{"/in": p.In, "/out": p.Out, "/workspace": p.Workspace, HomeDir: p.Home, ConfigDir: p.Config, "/in/previous-jobs": p.Previous}
	return insidePaths().ReplaceAllStringFunc(text, func(found string) string {
		slash := strings.IndexByte(found, '/')
		return found[:slash] + to[found[slash:]]
	})
}

// all is At for each text of a list.
func (p *Places) all(texts []string) []string {
	out := make([]string, len(texts))
	for i, text := range texts {
		out[i] = p.At(text)
	}
	return out
}

// values is At for each value of a map.
func (p *Places) values(texts map[string]string) map[string]string {
	out := map[string]string{}
	for name, text := range texts {
		out[name] = p.At(text)
	}
	return out
}

// Server is an MCP server at http://127.0.0.1:Port/Path.
type Server struct {
	Name string
	Port uint16
	Path string
	Note string // one line for the context file
}

// Launch is how to run an agent's program. The caller makes the sandbox with Mounts and Routes, provides Config at
// [ConfigDir] and the files of Home below $HOME, and links Context in Dir to the file of that name in Config.
type Launch struct {
	Argv, Env []string
	Dir       string
	HomeDir   string // $HOME
	Context   string
	Config    map[string][]byte
	Home      map[string][]byte // see Seed
	Keep      []string          // files of Home that Seed does not replace
	Mounts    []runner.Mount
	Routes    []runner.Route // their Header comes from Renew: see Authorize
	User      *runner.User
	Token     string

	copies []copied // of the user's own settings; see AddSettings
}

// copied is a file of the user's settings.
type copied struct {
	name string
	data []byte
	perm fs.FileMode
}

// longestPrompt is below the kernel's limit for one argument, 128 KiB. A longer prompt is in the context file only.
const longestPrompt = 100 << 10

// The prompts of a program that continues its session, and of one whose prompt is too long for an argument.
const (
	continuePrompt = "Continue the task where it was interrupted."
	elsewhere      = "Do the task in the section \"Task\" of the file %s/%s."
)

// NewToken returns the sandbox's token of a new run. It is worth nothing outside the routes of that run.
func NewToken() string {
	var b [32]byte
	rand.Read(b[:])
	return "demesne-agent-" + hex.EncodeToString(b[:])
}

// Headless plans a run without a terminal.
func (a *Agent) Headless(t Task) *Launch {
	l, values := a.launch(t, t.Places.At(HomeDir))
	values["prompt"] = a.prompt(t)
	l.Argv = append(append(l.Argv, expand(t.Places.all(a.Provider.Headless), values)...), t.images(a.Provider.Image.Argument)...)
	l.Context = a.Provider.Context
	l.Config[l.Context] = a.Provider.context(t)
	return l
}

// Resume returns the argv that continues a session of a run that Headless planned for the same task. Everything else
// of that Launch stays as it is.
func (a *Agent) Resume(t Task, session string) ([]string, error) {
	return a.resume(t, session, continuePrompt)
}

func (a *Agent) resume(t Task, session, prompt string) ([]string, error) {
	if len(a.Provider.Resume) == 0 {
		return nil, fmt.Errorf("resume session: agent %q cannot resume", a.Provider.Name)
	}
	if session == "" || strings.HasPrefix(session, "-") {
		return nil, fmt.Errorf("resume session: bad session %q", session) // the program's own words, so they may be anything
	}
	values := map[string]string{"prompt": prompt, "session": session, "model": a.inner, "dir": t.Places.At(t.Dir), "home": t.Places.At(HomeDir),
		"hosted": a.Provider.API.Hosted.of(t)}
	return append(slices.Clone(a.program.argv), expand(t.Places.all(a.Provider.Resume), values)...), nil
}

// launch plans what both kinds of run share.
func (a *Agent) launch(t Task, home string) (*Launch, map[string]string) {
	if t.Token == "" {
		t.Token = NewToken()
	}
	if t.Dir == "" {
		t.Dir = "/workspace"
	}
	t.Dir = t.Places.At(t.Dir)
	p := a.Provider
	values := map[string]string{"model": a.inner, "dir": t.Dir, "home": home, "token": t.Token, "script": a.script, "token20": t.Token[max(0, len(t.Token)-20):],
		"url": "http://127.0.0.1:" + strconv.Itoa(int(p.API.Port)), "hosted": p.API.Hosted.of(t)}
	servers := p.Servers.list(t.Servers)
	l := &Launch{Argv: slices.Clone(a.program.argv), Mounts: a.program.mounts, Dir: t.Dir, HomeDir: home, Token: t.Token, Env: a.environ(t.Places, values),
		Config: fill(t.Places.values(p.Config), values, servers), Home: fill(t.Places.values(p.Home), values, servers), Keep: p.Keep}
	l.Routes = []runner.Route{{Port: p.API.Port, To: a.cred.Base, Allow: p.allow(a.inner), Token: t.Token, Usage: p.API.Usage,
		Query: p.API.Query, Headers: p.API.Headers, Closed: !t.open() && !p.API.Unchecked}}
	if a.program.inImage {
		l.User = &runner.User{} // not the image's: only uid 0 owns the caller's directories
	}
	return l, values
}

// Authorize puts the headers that Renew returned into the routes.
func (l *Launch) Authorize(headers map[uint16]map[string]string) {
	for i, r := range l.Routes {
		if h := headers[r.Port]; h != nil {
			l.Routes[i].Header = h
		}
	}
}

// environ returns the program's variables in addition to the sandbox's own, which has the opt-outs of telemetry.
func (a *Agent) environ(places *Places, values map[string]string) []string {
	env := map[string]string{"HOME": "{home}", "IS_SANDBOX": "1",
		"XDG_CONFIG_HOME": "{home}/.config", "XDG_CACHE_HOME": "{home}/.cache",
		"XDG_DATA_HOME": "{home}/.local/share", "XDG_STATE_HOME": "{home}/.local/state"}
	maps.Copy(env, a.Provider.Env)
	maps.Copy(env, a.cred.Inside)
	var list []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+expand([]string{places.At(env[name])}, values)[0])
	}
	return list
}

// allow returns the requests that the route forwards: with {model}, those for each model that the program may ask.
func (p *Provider) allow(inner string) (all []string) {
	models := []string{inner}
	for _, m := range append(slices.Clone(p.Models), p.Side...) {
		models = append(models, strings.TrimPrefix(m, p.Prefix))
	}
	for _, request := range p.API.Allow {
		if !strings.Contains(request, "{model}") {
			all = append(all, request)
			continue
		}
		for i, m := range models {
			if !slices.Contains(models[:i], m) {
				all = append(all, strings.ReplaceAll(request, "{model}", m))
			}
		}
	}
	return all
}

// prompt makes a prompt that every program reads as such: not as an option, and never too long.
func (a *Agent) prompt(t Task) string {
	prompt := t.Prompt
	switch {
	case len(t.Prompt) > longestPrompt:
		prompt = fmt.Sprintf(elsewhere, t.Places.At(ConfigDir), a.Provider.Context)
	case strings.HasPrefix(t.Prompt, "-"):
		prompt = " " + t.Prompt
	}
	return strings.Join(append([]string{prompt}, t.images(a.Provider.Image.Mention)...), "\n")
}

// images returns words for each image, with its path in place of {file}.
func (t Task) images(words string) (all []string) {
	if words == "" {
		return nil
	}
	for _, name := range t.Images {
		all = append(all, strings.ReplaceAll(words, "{file}", t.Places.At("/in")+"/"+name))
	}
	return all
}

// expand replaces the placeholders in arguments. A value that looks like a placeholder stays as it is.
func expand(args []string, values map[string]string) []string {
	r := replacer(values, func(s string) string { return s }, "{servers}", "")
	out := make([]string, len(args))
	for i, arg := range args {
		out[i] = r.Replace(arg)
	}
	return out
}

// fill replaces the placeholders in files.
func fill(files map[string]string, values map[string]string, servers string) map[string][]byte {
	r := replacer(values, escape, "{servers}", servers, "{hosted}", values["hosted"])
	out := map[string][]byte{}
	for name, text := range files {
		out[name] = []byte(r.Replace(text))
	}
	return out
}

// replacer replaces the placeholders of values by encoded text. Pairs are replaced as they are, and come first.
func replacer(values map[string]string, encode func(string) string, pairs ...string) *strings.Replacer {
	for name, value := range values {
		pairs = append(pairs, "{"+name+"}", encode(value))
	}
	return strings.NewReplacer(pairs...)
}

// escape writes s as the inside of a string in double quotes. JSON's escapes are TOML's as well.
func escape(s string) string {
	quoted, _ := json.Marshal(s)
	return string(quoted[1 : len(quoted)-1])
}

// list writes MCP servers in the provider's format.
func (s Servers) list(servers []Server) string {
	entries := make([]string, len(servers))
	for i, v := range servers {
		url := "http://127.0.0.1:" + strconv.Itoa(int(v.Port)) + path.Join("/", v.Path)
		entries[i] = replacer(map[string]string{"name": v.Name, "url": url}, escape).Replace(s.Entry)
	}
	return strings.Join(entries, s.Join)
}
