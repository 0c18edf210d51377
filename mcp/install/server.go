package install

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"demesne/internal/cmdline"
)

// ServerOptions holds the command line of demesne-mcp.
type ServerOptions struct {
	HTTP, TokenFile string
	Tools           string
	Hosts           []string
}

const groupServer = "Server"

// ToolSets returns the names of the optional tool sets.
func ToolSets() []string {
	return []string{"files", "sandboxes", "code", "web", "browser", "computer", "host"}
}

// ParseTools splits a list of tool sets, and refuses unknown ones.
func ParseTools(list string) ([]string, error) {
	sets := strings.FieldsFunc(list, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
	for _, name := range sets {
		if !slices.Contains(ToolSets(), name) {
			return nil, fmt.Errorf("%q is not a tool set (known: %s)", name, strings.Join(ToolSets(), ", "))
		}
	}
	return sets, nil
}

// ServerFlags returns the flags of demesne-mcp, bound to o.
func ServerFlags(o *ServerOptions) cmdline.Flags {
	text := func(to *string) func(string) error { return func(s string) error { *to = s; return nil } }
	return cmdline.Flags{
		{Group: groupServer, Long: "tools", Arg: "SETS", Set: text(&o.Tools),
			Help: "add tool sets: files, to read, write, edit and search files of a sandbox; sandboxes, to fork and copy between them; code, to execute code in sessions; web, to read pages of the web and ask a search engine; browser, to use a browser in a sandbox; computer, to use a desktop in a sandbox; host, to run commands of this machine that its policy lists or a person approves (default $DEMESNE_TOOLS)"},
		{Group: groupServer, Long: "http", Arg: "ADDR", Set: text(&o.HTTP),
			Help: "listen on host:port or unix:PATH, instead of stdin and stdout"},
		{Group: groupServer, Long: "token-file", Arg: "FILE", Complete: cmdline.File, Set: text(&o.TokenFile),
			Help: "require the first line of this file as bearer token from HTTP clients (default $DEMESNE_MCP_TOKEN)"},
		{Group: groupServer, Long: "host", Arg: "NAME", Repeat: true, Set: func(s string) error { o.Hosts = append(o.Hosts, s); return nil },
			Help: "accept HTTP requests for this host name, in addition to localhost"},
	}
}

// ServerCommand returns the command line of demesne-mcp, whose flags set o.
func ServerCommand(o *ServerOptions) *cmdline.Command {
	return &cmdline.Command{
		Program: "demesne-mcp", Usage: []string{"[--tools SET]", "[--tools SET] --http ADDR|unix:PATH [--token-file FILE] [--host NAME]…"},
		Summary: "serve MCP tools that run commands in sandboxes",
		About: `Serves MCP tools that run commands in sandboxes: on stdin and stdout, or over HTTP at /mcp. demesne mcp starts this
program; demesne mcp install adds it to the configuration of a client.

An address that other machines can reach needs a bearer token. A socket at unix:PATH is only for its owner.

At the end of its input, and on INT, TERM or HUP, the server answers the calls in progress and exits 0. A second INT or
TERM ends it at once.`,
		Examples: []cmdline.Example{
			{Says: "serve HTTP clients of this machine", Line: "demesne-mcp --http 127.0.0.1:8765"},
			{Says: "serve other machines", Line: "demesne-mcp --http 0.0.0.0:8765 --host tools.example --token-file token"},
		},
		Flags:  ServerFlags(o),
		Topics: []cmdline.Topic{ServerEnvironment()},
	}
}

// ServerEnvironment describes the variables that demesne-mcp reads.
func ServerEnvironment() cmdline.Topic {
	return cmdline.Topic{
		Section: "ENVIRONMENT", Summary: "the variables that demesne-mcp reads",
		Text: `The operator's limits come from the environment; the server has no configuration file. It also reads the variables of
demesne(1).`,
		Entries: []cmdline.Entry{
			{Name: "DEMESNE_ALLOWED_PATHS", Text: "directories that tools can mount, separated by colons (default the working directory, unless it is a home directory or contains one)"},
			{Name: "DEMESNE_SECRETS", Text: "namespace of the stored secrets that models can use, without seeing their values (default none)"},
			{Name: "DEMESNE_ALLOWED_DOMAINS", Text: "network rules that models can use without a question (default none)"},
			{Name: "DEMESNE_PACKAGE_AGE", Text: "least age of packages, such as 7d; DEMESNE_PACKAGE_AGE_EXCEPT names packages that may be younger (default any)"},
			{Name: "DEMESNE_ALLOWED_IMAGES", Text: "images that models can name in addition to the catalogue's; registry.example/org/* allows all of one organization"},
			{Name: "DEMESNE_DENIED_COMMANDS", Text: "commands that are refused, as regular expressions separated by commas; a courtesy to models, and no boundary (default none)"},
			{Name: "DEMESNE_MAX_MEMORY, _DISK, _PIDS, _CPUS", Text: "ceilings for the limits that a model requests (default from the machine's capacity)"},
			{Name: "DEMESNE_MAX_TIMEOUT", Text: "ceiling for the time of one command, from 1s to 48h (default 48h)"},
			{Name: "DEMESNE_MAX_COST_USD", Text: "ceiling for the cost of one agent with its children, in US dollars (default none)"},
			{Name: "DEMESNE_MAX_TOKENS", Text: "ceiling for the tokens that one agent uses with its children (default none)"},
			{Name: "DEMESNE_MAX_OUTPUTS", Text: "how many of the newest output directories are kept (default 1000)"},
			{Name: "DEMESNE_MAX_SESSIONS, _PER_CALLER", Text: "how many code sessions there may be, and how many of one client (default no bound)"},
			{Name: "DEMESNE_SESSION_IDLE, _AGE", Text: "when a code session ends that was not used, or is old (default never)"},
			{Name: "DEMESNE_PREPARED_SESSIONS", Text: "how many code sessions are started in advance (default 2)"},
			{Name: "DEMESNE_MCP_TOKEN", Text: "the bearer token that HTTP clients must send"},
			{Name: "DEMESNE_TOOLS", Text: "tool sets in addition to the default tools: files, sandboxes, code, web, browser, computer, host"},
			{Name: "DEMESNE_SEARCH_URL", Text: "search engine of the tool set web, with SearXNG's API, such as http://127.0.0.1:8888 (default none)"},
			{Name: "DEMESNE_HOST_POLICY", Text: "policy of the tool set host (default ~/.config/demesne/host.toml)"},
		},
	}
}
