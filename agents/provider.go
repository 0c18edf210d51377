package agents

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"demesne/internal/text"
	"demesne/runner"
	"demesne/runner/ipc"
)

// Provider describes one coding agent. It is a row of the table, and has the same fields in a user's file.
//
// Strings with placeholders may contain {prompt}, {model}, {session}, {dir}, {home}, {token}, {token20} (its last 20
// characters), {url} (the base URL of API inside the sandbox), {servers} and {hosted}. In [Provider.Config] and
// [Provider.Home] values are escaped for strings in double quotes, as JSON and TOML have them, except {servers} and
// {hosted}. In Interactive the element {args} stands for all arguments of the user, and {skip} for the arguments about
// permission prompts: see [Prompts].
type Provider struct {
	Name    string `json:"name"`             // unique, such as claude-code
	Command string `json:"command"`          // the program, as found through PATH, and the verb of demesne agent
	Enable  string `json:"enable,omitempty"` // environment variable that disables the row with a false value

	// Models are unique over all rows, as they select the row. The first is the default. With Prefix, every model
	// PREFIX+NAME belongs to the row, and the program gets NAME. Side are models that the program asks on its own, its own
	// default included.
	Models []string `json:"models"`
	Prefix string   `json:"prefix,omitempty"`
	Side   []string `json:"side,omitempty"`

	Arguments
	Image   Image   `json:"image,omitzero"`
	Prompts Prompts `json:"prompts,omitzero"`
	ACP     ACP     `json:"acp,omitzero"`

	Env    map[string]string `json:"env,omitempty"`
	Format string            `json:"format"` // of the program's stdout, one of [formatNames]

	Context  string            `json:"context"`            // name of the context file that the program reads in its directory
	Guidance string            `json:"guidance,omitempty"` // further sections of the context file
	Project  []string          `json:"-"`                  // files of a project that the program obeys; rootfs/upper has all of them
	Config   map[string]string `json:"config,omitempty"`   // files of /in/.agent
	Home     map[string]string `json:"home,omitempty"`     // files below $HOME
	Keep     []string          `json:"keep,omitempty"`     // files of Home that are not replaced where they exist
	Settings Settings          `json:"settings,omitempty"` // places of the user's own settings, for AddSettings
	Servers  Servers           `json:"servers,omitzero"`   // how files name MCP servers
	Tools    Tools             `json:"tools,omitzero"`     // the user's own MCP servers

	API         API          `json:"api"`
	Credentials []Credential `json:"credentials"`       // the first that this host has is used
	Missing     string       `json:"missing,omitempty"` // error if it has none; {tool} is the caller's name
	Program     Program      `json:"program,omitzero"`
	Prices      []Price      `json:"prices,omitempty"` // of models that are not in the table of prices
	Retry       Retry        `json:"retry,omitzero"`
}

// Arguments are the arguments of the program in each kind of run.
type Arguments struct {
	Headless    []string `json:"headless"`              // of a run without a terminal
	Resume      []string `json:"resume"`                // arguments of a run that continues {session}
	Interactive []string `json:"interactive,omitempty"` // of the program at a terminal; empty: {args}
	Continue    []string `json:"continue,omitempty"`    // what a user types to continue the last session at a terminal

	Chdir []string `json:"chdir,omitempty"` // options that name the program's directory, which becomes the project

	// Commands and Serves are sub-commands of the program that get no arguments of the row. Commands ask no model, and need
	// no credential.
	Commands []string `json:"commands,omitempty"`
	Serves   []string `json:"serves,omitempty"`
}

// Image says how the program shows its model an image of the task: by one more argument, or by words after the prompt. {file} is
// the path of the image.
type Image struct {
	Argument string `json:"argument,omitempty"`
	Mention  string `json:"mention,omitempty"`
}

// Prompts has the arguments with which the program asks before it acts, or does not ask. At a terminal it does not ask, because the sandbox
// bounds what it can do, unless the caller chose otherwise: an argument of Chosen is among the caller's own, and then none is
// added.
type Prompts struct {
	Skip   []string          `json:"skip,omitempty"`    // arguments of a program that does not ask
	Ask    []string          `json:"ask,omitempty"`     // arguments of one that asks
	AskEnv map[string]string `json:"ask_env,omitempty"` // variables of one that asks, in place of Env's; an empty value removes one
	Chosen []string          `json:"chosen,omitempty"`  // options, as a caller spells them; one that ends with * is a prefix
}

// ACP says how the program speaks the Agent Client Protocol on its stdin and stdout. The zero ACP is of a program that does not.
type ACP struct {
	// Command is the adapter that speaks for the program, as found through PATH, and Variable names the program to it. With an
	// empty Command the program speaks itself, with the arguments Arguments.
	Command   string   `json:"command,omitempty"`
	Variable  string   `json:"variable,omitempty"`
	Arguments []string `json:"arguments,omitempty"`

	Env          map[string]string `json:"env,omitempty"`
	Capabilities map[string]any    `json:"capabilities,omitempty"` // agentCapabilities, as far as they are known before the program starts
}

// Speaks reports whether the row has the protocol.
func (a ACP) Speaks() bool { return a.Command != "" || len(a.Arguments) > 0 }

// Servers describes how a file of the provider lists MCP servers. Each is Entry, with {name} and {url}; Join is between
// them. The list replaces {servers}.
type Servers struct {
	Entry string `json:"entry"`
	Join  string `json:"join,omitempty"`
}

// Tools is the file in which the user's own installation of the program lists MCP servers.
type Tools struct {
	File   string `json:"file"`          // ~/ is the user's home
	Env    string `json:"env,omitempty"` // variable that replaces File
	Format string `json:"format"`        // "json" or "toml"
}

// API is the HTTP interface of the provider's models, on the sandbox's loopback.
type API struct {
	Port  uint16   `json:"port"`  // in a user's file 0 means any
	Usage string   `json:"usage"` // see [runner.Usages]
	Allow []string `json:"allow"` // "METHOD /path"; one with {model} is repeated for each of the row's models

	// Query and Headers are the query parameters, and the headers of a closed route, that are forwarded: see
	// [runner.Route]. Unchecked forwards requests also where the provider might reach other hosts for an agent whose
	// own network is closed. It is for servers that reach none, and needed without Usage.
	Query     []string `json:"query,omitempty"`
	Headers   []string `json:"headers,omitempty"`
	Unchecked bool     `json:"unchecked,omitempty"`

	Hosted Hosted `json:"hosted,omitzero"`
}

// Hosted is the text of {hosted}. It keeps the program from offering tools that run on the provider's servers, such as
// a web search, to a model whose sandbox must not reach the internet. The route refuses requests with such tools.
type Hosted struct {
	Open   string `json:"open,omitempty"`   // with the whole network
	Closed string `json:"closed,omitempty"` // otherwise
}

// open reports whether the sandbox reaches the whole network.
func (t Task) open() bool { return t.Research || t.Egress == "open" }

func (h Hosted) of(t Task) string {
	if t.open() {
		return h.Open
	}
	return h.Closed
}

// Credential is a place where a host may have the provider's credential, and how requests carry it.
type Credential struct {
	// Env is the variable with the value. File is a file with it, or FileEnv the variable with that file's path. Kind
	// names the format of the file: "codex", "claude-login", or "text" only for the value.
	Env     string `json:"env,omitempty"`
	File    string `json:"file,omitempty"` // ~/ is the user's home
	FileEnv string `json:"file_env,omitempty"`
	Kind    string `json:"kind,omitempty"`

	Base    string `json:"base"`               // base URL of the interface
	BaseEnv string `json:"base_env,omitempty"` // variable that replaces it
	Header  string `json:"header"`             // header of the credential
	Scheme  string `json:"scheme,omitempty"`   // word before the value, such as Bearer

	// Inside has the variables that make the program use {token}.
	Inside map[string]string `json:"inside"`
}

// Program says where npm puts the program. The host's own installation is used where it lies: see [Agent.Headless].
type Program struct {
	// Native is the platform's executable, as a pattern below node_modules: {arch} is x64 or arm64. It is used where
	// the command in PATH is a script that starts it. Beside are files that the executable needs, relative to it.
	Native string   `json:"native,omitempty"`
	Beside []string `json:"beside,omitempty"`
	// Image is the image that has the program as Command in PATH. Hosts without an installation use it. The image of a built-in
	// row is a recipe: see package recipes.
	Image string `json:"image,omitempty"`
	// Shell is a shell that the program starts and does not bring. It starts the program of an image, so that an image
	// without it is an error before the first request to the model.
	Shell string `json:"shell,omitempty"`
}

// Retry bounds how often and how long a run waits for a rate limit's reset before it resumes its session.
type Retry struct {
	Attempts int             `json:"attempts,omitempty"`
	Total    runner.Duration `json:"total,omitempty"`  // of all waits
	Base     runner.Duration `json:"base,omitempty"`   // first wait without a known reset; it doubles
	Most     runner.Duration `json:"most,omitempty"`   // longest such wait
	Buffer   runner.Duration `json:"buffer,omitempty"` // added to a known reset
}

// retry makes the bounds that all providers share.
func retry(attempts int, total time.Duration) Retry {
	return Retry{Attempts: attempts, Total: runner.Duration(total), Base: runner.Duration(300 * time.Second),
		Most: runner.Duration(3600 * time.Second), Buffer: runner.Duration(30 * time.Second)}
}

// SettingNames are the parts of a user's own settings that a caller can choose for the agent's home.
var SettingNames = []string{"skills", "commands", "memory"}

// Settings are the places of a user's own settings, by part: files and directories, relative to $HOME. No part of a
// built-in row has a credential.
type Settings map[string][]string

// settings makes the places of a row, each a list of words.
func settings(skills, commands, memory string) Settings {
	return Settings{"skills": strings.Fields(skills), "commands": strings.Fields(commands), "memory": strings.Fields(memory)}
}

func (s Settings) check() error {
	for part, places := range s {
		if !slices.Contains(SettingNames, part) {
			return fmt.Errorf("settings %q: not one of %s", part, strings.Join(SettingNames, ", "))
		}
		for _, place := range places {
			if !filepath.IsLocal(place) || path.Clean(place) == "." {
				return fmt.Errorf("settings %q: %q: not a path below the home directory", part, place)
			}
		}
	}
	return nil
}

// arch is npm's name of this machine's architecture.
func arch() string {
	if runtime.GOARCH == "amd64" {
		return "x64"
	}
	return runtime.GOARCH
}

// owns reports whether model belongs to the row, and returns the name that the program gets.
func (p *Provider) owns(model string) (inner string, ok bool) {
	for _, m := range p.Models {
		if m == model {
			return strings.TrimPrefix(model, p.Prefix), true
		}
	}
	inner, ok = strings.CutPrefix(model, p.Prefix)
	return inner, ok && p.Prefix != "" && inner != ""
}

// Explain explains the error of an agent that could not be started because its image lacks argv0: the agent's program, or
// the shell that starts it. It returns other errors as they are.
func (p *Provider) Explain(err error, image, argv0 string) error {
	var e *ipc.Error
	if image == "" || !errors.As(err, &e) || e.Code != ipc.CodeCommandNotFound {
		return err
	}
	hint := fmt.Sprintf("install %s in the image, in a directory of its PATH", p.Command)
	if argv0 != p.Command {
		hint = fmt.Sprintf("%s needs %s: install both in the image", p.Command, argv0)
	}
	return text.Hinted(fmt.Errorf("image %q has no %q: %w", image, argv0, err), "%s", hint)
}
