// Package servecmd is the command line of demesne serve. demesne shows its help, and demesne-frontend, which it executes,
// parses it. The package is small because both link it.
package servecmd

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/session"
)

// Options holds the flags of demesne serve as they were typed, or as the environment or the configuration file has them.
type Options struct {
	Config    string
	HTTP      string
	Linger    time.Duration // 0: for ever
	Exposed   bool
	Hosts     []string
	Domain    string
	IDSuffix  string
	TokenFile string
	Env       bool
	Page      bool
	Tools     string
	ToolTexts string
	Access
	TLS
	session.Bounds
	PackageAge time.Duration // 0: any

	LogRequests            bool
	HostPolicy             string
	KeepOutputs, KeepAudit time.Duration // 0: forever

	// Namespaces are the bounds of single namespaces, from the configuration file. Each has the general ones where it
	// names none.
	Namespaces map[string]session.Bounds

	// Name and Expires are flags of demesne serve token.
	Name    string
	Expires time.Duration
}

// Access says which requests are accepted, beside those with a token.
type Access struct {
	JWTKey, JWTAlgorithm, JWTAudience, JWTIssuer string

	Origins []string // of pages that may read answers
	MaxBody int64    // bytes of a JSON body
}

// TLS says how the server gets its certificate.
type TLS struct {
	Cert, Key                          string // files
	ACME                               []string
	ACMEDirectory, ACMECA, ACMEContact string
}

const (
	groupServer    = "Server"
	groupAccess    = "Access"
	groupSandboxes = "Sandboxes"
	groupBounds    = "Bounds of callers"
	groupOperation = "Operation"
	groupToken     = "Tokens of namespaces"
)

// The values of flags that were not typed.
const (
	DefaultAddress = "127.0.0.1:7480"
	DefaultEgress  = "open"
)

// Flags returns the flags, bound to o.
func Flags(o *Options) cmdline.Flags {
	all := cmdline.Flags{
		{Group: groupServer, Long: "http", Arg: "ADDR", Set: cmdline.Text(&o.HTTP),
			Help: "listen on host:port or unix:PATH (default " + DefaultAddress + ")"},
		{Group: groupServer, Long: "linger", Arg: "DURATION", Set: cmdline.Duration(&o.Linger),
			Help: "end when no client has been connected for so long (default never)"},
		{Group: groupServer, Long: "exposed", Set: cmdline.On(&o.Exposed),
			Help: "listen on an address that other machines can reach"},
		{Group: groupServer, Long: "host", Arg: "NAME", Repeat: true, Set: cmdline.List(&o.Hosts, nil),
			Help: "accept requests for this host name, in addition to localhost"},
		{Group: groupServer, Long: "domain", Arg: "NAME[:PORT]", Set: cmdline.Text(&o.Domain),
			Help: "names of ports in sandboxes are PORT-ID.NAME (default localhost and the server's port)"},
		{Group: groupServer, Long: "id-suffix", Arg: "NAME", Set: label(&o.IDSuffix),
			Help: "end the ids of E2B's sandboxes with -NAME, by which a router finds this server"},
		{Group: groupServer, Long: "token-file", Arg: "FILE", Complete: cmdline.File, Set: cmdline.Text(&o.TokenFile),
			Help: "the token that clients send as API key; made if it does not exist (default ~/.demesne/server/token)"},
		{Group: groupServer, Long: "env", Set: cmdline.On(&o.Env),
			Help: "print the variables for E2B's SDKs, with the token, and serve nothing"},
		{Group: groupServer, Long: "page", Set: cmdline.On(&o.Page),
			Help: "print the page's address, with the token, and serve nothing"},
		{Group: groupServer, Long: "tools", Arg: "SETS", Env: "DEMESNE_TOOLS", Set: cmdline.Text(&o.Tools),
			Help: "add tool sets to MCP's at /mcp: files, sandboxes, code, web, runs (default runs)"},
		{Group: groupServer, Long: "tool-texts", Arg: "FILE", Env: "DEMESNE_TOOL_TEXTS", Complete: cmdline.File, Set: cmdline.Text(&o.ToolTexts),
			Help: "take texts about MCP's tools from this TOML file: a table for each tool, with override or append"},
		{Group: groupServer, Long: "config", Arg: "FILE", Complete: cmdline.File, Set: cmdline.Text(&o.Config),
			Help: "take flags that are not typed from this TOML file (default ~/.config/demesne/serve.toml, if it exists)"},
	}
	all = append(all, accessFlags(o)...)
	all = append(all, BoundFlags(&o.Bounds)...)
	all = append(all, cmdline.Flag{Group: groupBounds, Long: "package-age", Arg: "AGE", Env: session.VarPackageAge, Set: cmdline.Age(&o.PackageAge),
		Help: "least age of the packages that registries offer to sandboxes, such as 7d; no caller can lower it (default any)"})
	all = append(all, operationFlags(o)...)
	for i := range all {
		if f := &all[i]; f.Env == "" && f.Long != "env" && f.Long != "page" {
			f.Env = "DEMESNE_SERVE_" + strings.ToUpper(strings.ReplaceAll(f.Long, "-", "_"))
		}
	}
	return append(all, tokenFlags(o)...)
}

func accessFlags(o *Options) cmdline.Flags {
	return cmdline.Flags{
		{Group: groupAccess, Long: "tls-cert", Arg: "FILE", Complete: cmdline.File, Set: cmdline.Text(&o.Cert),
			Help: "serve TLS with this certificate; read again when it changes"},
		{Group: groupAccess, Long: "tls-key", Arg: "FILE", Complete: cmdline.File, Set: cmdline.Text(&o.Key),
			Help: "its key, closed to other users"},
		{Group: groupAccess, Long: "acme", Arg: "NAME", Repeat: true, Set: cmdline.List(&o.ACME, nil),
			Help: "serve TLS with certificates for this host name by ACME: its port 443 must reach this server. You accept the authority's terms"},
		{Group: groupAccess, Long: "acme-directory", Arg: "URL", Set: cmdline.Text(&o.ACMEDirectory),
			Help: "directory of the ACME authority (default Let's Encrypt's)"},
		{Group: groupAccess, Long: "acme-ca-file", Arg: "FILE", Complete: cmdline.File, Set: cmdline.Text(&o.ACMECA),
			Help: "trust this certificate for the authority itself, such as step-ca's root (default the system's)"},
		{Group: groupAccess, Long: "acme-contact", Arg: "MAIL", Set: cmdline.Text(&o.ACMEContact),
			Help: "mail address for the authority"},
		{Group: groupAccess, Long: "jwt-key-file", Arg: "FILE", Complete: cmdline.File, Set: cmdline.Text(&o.JWTKey),
			Help: "accept JWTs that are signed with the key in this file, and name a namespace"},
		{Group: groupAccess, Long: "jwt-algorithm", Arg: "NAME", Words: jwtAlgorithms, Set: cmdline.Word(&o.JWTAlgorithm, jwtAlgorithms),
			Help: "accept only this algorithm: HS256, HS384 or HS512 (default all that the key is long enough for)"},
		{Group: groupAccess, Long: "jwt-audience", Arg: "NAME", Set: cmdline.Text(&o.JWTAudience),
			Help: "a JWT must have this audience (aud)"},
		{Group: groupAccess, Long: "jwt-issuer", Arg: "NAME", Set: cmdline.Text(&o.JWTIssuer),
			Help: "a JWT must have this issuer (iss)"},
		{Group: groupAccess, Long: "cors", Arg: "ORIGIN", Repeat: true, Set: cmdline.List(&o.Origins, origin),
			Help: "let pages of this origin call the API with a token, such as https://app.example.com"},
		{Group: groupAccess, Long: "max-body", Arg: "SIZE", Set: cmdline.Bytes(&o.MaxBody),
			Help: "largest body of a request but files (default 8m)"},
	}
}

var jwtAlgorithms = []string{"HS256", "HS384", "HS512"}

// BoundFlags returns the flags that a namespace can have too, bound to b.
func BoundFlags(b *session.Bounds) cmdline.Flags {
	return cmdline.Flags{
		{Group: groupSandboxes, Long: "image", Arg: "NAME", Set: cmdline.Text(&b.Image),
			Help: "image of the templates base and code-interpreter-v1 (default $DEMESNE_DEFAULT_IMAGE, or host)"},
		{Group: groupSandboxes, Long: "egress", Arg: "MODE", Words: runner.EgressModes(), Set: cmdline.Word(&b.Egress, runner.EgressModes()),
			Help: "what a sandbox with internet access may reach: " + text.Or(runner.EgressModes()) + " (default " + DefaultEgress + ")"},
		{Group: groupSandboxes, Long: "memory", Arg: "SIZE", Set: cmdline.Memory(&b.Limits.Memory),
			Help: "memory limit of each sandbox, or none (default " + session.DefaultMemory + ")"},
		{Group: groupSandboxes, Long: "disk", Arg: "SIZE", Set: cmdline.Disk(&b.Limits.Disk),
			Help: "limit for what a sandbox writes, or none (default 2g)"},
		{Group: groupBounds, Long: "max-memory", Arg: "SIZE", Env: "DEMESNE_MAX_MEMORY", Set: ceiling(&b.Max.Memory, cmdline.Memory),
			Help: "largest memory limit that a caller may ask for (default --memory)"},
		{Group: groupBounds, Long: "max-disk", Arg: "SIZE", Env: "DEMESNE_MAX_DISK", Set: ceiling(&b.Max.Disk, cmdline.Disk),
			Help: "largest disk limit that a caller may ask for (default --disk)"},
		{Group: groupBounds, Long: "max-pids", Arg: "N", Env: "DEMESNE_MAX_PIDS", Set: ceiling(&b.Max.PIDs, cmdline.PIDs),
			Help: "most processes and threads that a caller may ask for (default 512)"},
		{Group: groupBounds, Long: "max-cpus", Arg: "N", Env: "DEMESNE_MAX_CPUS", Set: positive(&b.Max.CPUs),
			Help: "most processors that a sandbox has (default no bound)"},
		{Group: groupBounds, Long: "max-timeout", Arg: "DURATION", Env: "DEMESNE_MAX_TIMEOUT", Set: cmdline.Duration(&b.MaxTimeout),
			Help: "longest time of one command, terminal or execution of code (default 48h)"},
		{Group: groupBounds, Long: "max-sandboxes", Arg: "N", Set: number(&b.MaxSandboxes),
			Help: "most sandboxes of one namespace (default: only $DEMESNE_MAX_SANDBOXES bounds them)"},
		{Group: groupBounds, Long: "max-stored", Arg: "SIZE", Set: cmdline.Bytes(&b.MaxStored),
			Help: "most that volumes, uploads and images of templates of one namespace hold, each volume at most a sandbox's disk limit (default 10 disk limits)"},
		{Group: groupBounds, Long: "max-files", Arg: "N", Set: number(&b.MaxFiles),
			Help: "most files and directories of these (default 100000)"},
		{Group: groupBounds, Long: "max-volumes", Arg: "N", Set: number(&b.MaxVolumes),
			Help: "most volumes of one namespace (default 100)"},
		{Group: groupBounds, Long: "max-snapshots", Arg: "N", Set: number(&b.MaxSnapshots),
			Help: "most snapshots of one namespace over E2B's API (default 100)"},
		{Group: groupBounds, Long: "max-templates", Arg: "N", Set: number(&b.MaxTemplates),
			Help: "most templates of one namespace (default 100)"},
		{Group: groupBounds, Long: "allowed-images", Arg: "NAME", Repeat: true, Env: "DEMESNE_ALLOWED_IMAGES", Set: cmdline.List(&b.AllowedImages, nil),
			Help: "images that callers may name in addition to the catalogue's, such as ghcr.io/org/*; any restricts the operator too"},
		{Group: groupBounds, Long: "allowed-domains", Arg: "RULE", Repeat: true, Set: cmdline.List(&b.AllowedDomains, nil),
			Help: "rule that callers may allow beyond --egress, such as api.example.com; private addresses too, if it names them"},
		{Group: groupBounds, Long: "allowed-mounts", Arg: "DIR[:rw]", Repeat: true, Complete: cmdline.Directory, Set: cmdline.List(&b.AllowedMounts, nil),
			Help: "directory of this machine that sandboxes of callers may mount, with what is below it; read-only without :rw (default none)"},
		{Group: groupBounds, Long: "rate", Arg: "N", Set: positive(&b.Rate),
			Help: "requests a second of one namespace; as many as in two seconds may come at once (default no bound)"},
		{Group: groupBounds, Long: "max-running", Arg: "N", Set: number(&b.MaxRunning),
			Help: "commands, terminals and executions of code that run at once; others wait in a queue (default no bound)"},
		{Group: groupBounds, Long: "max-waiting", Arg: "N", Set: number(&b.MaxWaiting),
			Help: "commands of a namespace that wait, with --max-running; one more is refused (default 100)"},
		{Group: groupBounds, Long: "agents", Set: cmdline.On(&b.Agents),
			Help: "let callers of namespaces run agents, which use your credentials"},
	}
}

func operationFlags(o *Options) cmdline.Flags {
	return cmdline.Flags{
		{Group: groupOperation, Long: "host-policy", Arg: "FILE", Complete: cmdline.File, Set: cmdline.Text(&o.HostPolicy),
			Help: "let callers run the commands of this machine that a policy lists, and others after demesne approve (default: no command)"},
		{Group: groupOperation, Long: "log-requests", Set: cmdline.On(&o.LogRequests),
			Help: "write a line for each request to stderr"},
		{Group: groupOperation, Long: "keep-outputs", Arg: "DURATION", Set: cmdline.Duration(&o.KeepOutputs),
			Help: "remove outputs and logs that nothing has changed for so long, such as 720h (default: never)"},
		{Group: groupOperation, Long: "keep-audit", Arg: "DURATION", Set: cmdline.Duration(&o.KeepAudit),
			Help: "remove files of the audit log that are older (default: never)"},
	}
}

func tokenFlags(o *Options) cmdline.Flags {
	return cmdline.Flags{
		{Group: groupToken, Long: "name", Arg: "NAME", Set: cmdline.Text(&o.Name), Help: "with token add: name of the token (default the namespace's)"},
		{Group: groupToken, Long: "expires", Arg: "DURATION", Set: cmdline.Duration(&o.Expires), Help: "with token add: end of the token, such as 720h (default never)"},
	}
}

// Command returns the command with its help.
func Command(o *Options) *cmdline.Command {
	return &cmdline.Command{
		Name: "serve", Usage: []string{"[flags]", "token add [--name NAME] [--expires DURATION] NAMESPACE", "token list", "token rm NAME…"},
		Summary: "serve sandboxes over HTTP, for programs and people",
		About: `Serves HTTP APIs for programs that use sandboxes: the one that E2B's SDKs speak, demesne's own at /v1, and MCP.

Clients need the token as API key. The server makes the token at its first start, in a file that only its user can read.
It listens on loopback, or on a socket only for its owner. Sandboxes live until their timeout, also while no server runs:
the next server finds them, and removes those whose time is over.

token add makes a token for a namespace, and prints it once. Callers with such a token have sandboxes, secrets and bounds
of their own, and see no others. token list shows names and namespaces, and token rm ends a token at once.

Each flag can be a key of the configuration file, without its dashes, and a variable such as DEMESNE_SERVE_HTTP. The command line overrides
the variable, and the variable overrides the file. The table [namespaces.NAME] of the file has bounds of one namespace.

docs/guide/server/serve.md lists the calls that are supported, and docs/guide/server/access.md is about tokens, TLS and bounds.`,
		Examples: []cmdline.Example{
			{Says: "print the address of the page, which logs in", Line: "demesne serve --page"},
			{Says: "serve the SDKs of this machine", Line: "demesne serve"},
			{Says: "run a program against it", Line: `eval "$(demesne serve --env)" && node program.mjs`},
			{Says: "give sandboxes an image, and no network", Line: "demesne serve --image python:3.12 --egress none"},
			{Says: "make a token for a team", Line: "demesne serve token add --expires 720h team-a"},
			{Says: "serve other machines", Line: "demesne serve --http :443 --exposed --host sandboxes.example.com --acme sandboxes.example.com"},
		},
		Flags: Flags(o), Words: []string{"token"},
	}
}

// origin checks the origin of a page: a scheme and a host. A pattern for all of them is refused.
func origin(s string) error {
	rest, ok := strings.CutPrefix(s, "https://")
	if !ok {
		rest, ok = strings.CutPrefix(s, "http://")
	}
	if !ok || rest == "" || strings.ContainsAny(rest, "/*?# \"") {
		return errors.New("not an origin (such as https://app.example.com)")
	}
	return nil
}

func number[T int | int64](to *T) func(string) error {
	return func(s string) error {
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil || n < 1 {
			return errors.New("not a number of at least 1")
		}
		*to = T(n)
		return nil
	}
}

// ceiling returns a setter for the largest value of a limit: every value of that limit but none.
func ceiling(to *int64, limit func(*int64) func(string) error) func(string) error {
	return func(s string) error {
		var n int64
		err := limit(&n)(s)
		if err == nil && n == text.Unlimited {
			err = errors.New("a ceiling cannot be none")
		}
		if err == nil {
			*to = n
		}
		return err
	}
}

func positive(to *float64) func(string) error {
	return func(s string) error {
		n, err := strconv.ParseFloat(s, 64)
		if err != nil || !(n >= 0.01 && n <= 1<<20) {
			return errors.New("not a number from 0.01")
		}
		*to = n
		return nil
	}
}

// label parses the end of a DNS label, before which the id of a sandbox and a port fit.
func label(to *string) func(string) error {
	return func(s string) error {
		if len(s) == 0 || len(s) > 36 || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || strings.HasSuffix(s, "-") {
			return errors.New("not 1 to 36 lower-case letters, digits and dashes")
		}
		*to = s
		return nil
	}
}
