package mcp

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"demesne/mcp/backend"
	"demesne/runner"
)

// The arguments that script, create and exec share. The first four are part of the original tool
// interface; demesne added the others.

func (o *Options) imageField() property {
	return field("image", "string", "Root filesystem: one of "+strings.Join(o.Images, ", ")+". "+
		"host is this machine's own /usr, read-only, and needs no download.").with("default", o.Image)
}

func (o *Options) egressField(fallback string) property {
	return field("egress", "string", "Network: none (nothing but loopback), or package-managers "+
		"(npm, PyPI, conda, Go, Debian, Ubuntu, Alpine, Cargo, RubyGems and nothing else).").
		with("enum", o.Egress).with("default", fallback)
}

func (o *Options) filesField() property {
	return listOf("files", "Files of the host to show read-only at /in/<basename>. Must be absolute and inside one of the configured mount roots: "+o.Mounts.String()+".")
}

func (o *Options) dirsField() property {
	return listOf("directories", "Directories of the host to show read-only at /in/<basename>. Must be absolute and inside one of the configured mount roots: "+o.Mounts.String()+".")
}

var (
	timeoutField = field("timeout_seconds", "number", "End the command, and everything it started, after this many seconds (exit code 124). Default: 48 h.")
	envField     = tableOf("env", "Environment variables for the command. Nothing else of the host's environment is passed.")
	stdinField   = field("stdin", "string", "What the command reads on standard input.")
	domainsField = listOf("allowed_domains", "Hosts the sandbox may reach in addition to egress: name (ports 80 and 443), *.name, or name:port. "+
		"The person at the client must accept hosts that the operator did not list.")
	nameField    = field("name", "string", "A readable name, usable as sandbox_id in later calls.")
	keyField     = field("key", "string", "The same key finds the same sandbox again, with its files. Omitted arguments keep its settings; a different setting is an error.")
	replaceField = field("replace", "boolean", "Remove the sandbox with this key and its files, and create a new one.").with("default", false)
	queueField   = field("queue", "boolean", "Wait for earlier calls with queue on this sandbox; such calls run one at a time, in order.").with("default", false)
	limitsField  = property{name: "limits", schema: arguments(
		field("memory", "integer", "bytes"), field("cpus", "number", "processors"),
		field("pids", "integer", "processes and threads"), field("disk", "integer", "bytes that may be written to each of /, /out and /workspace"),
	)}
)

func cwdField(fallback string) property {
	return field("cwd", "string", "Directory to run in, absolute inside the sandbox.").with("default", fallback)
}

// sandboxRequest reads the arguments that script and create share. If the egress argument is absent or
// not a string, it uses fallback.
func (c *call) sandboxRequest(fallback string) (backend.Request, error) {
	r := backend.Request{Image: c.args.text("image"), Egress: c.args.text("egress")}
	r.Spec.Name, r.Spec.Key, r.Spec.Replace = c.args.text("name"), c.args.text("key"), c.args.flag("replace")
	r.OwnImage, r.OwnEgress = r.Image != "", r.Egress != ""
	if r.Spec.Replace && r.Spec.Key == "" {
		return r, fmt.Errorf("replace: needs a key")
	}
	if r.Image == "" {
		r.Image = c.opts.Image
	}
	if r.Egress == "" {
		r.Egress = fallback
	}
	if err := c.checkWords(r); err != nil {
		return r, err
	}
	files, err := c.args.texts("files")
	if err != nil {
		return r, err
	}
	dirs, err := c.args.texts("directories")
	if err != nil {
		return r, err
	}
	if r.Spec.Inputs, err = c.opts.Mounts.inputs(files, dirs); err != nil {
		return r, err
	}
	if r.Ask = c.args.flag("ask"); r.Ask && c.args.flag("background") {
		return r, fmt.Errorf("ask: not possible with background")
	}
	if r.Spec.Limits, err = c.limits(); err != nil {
		return r, err
	}
	if r.UnaskedLimits, err = c.opts.Ceilings.bound(&r.Spec.Limits); err != nil {
		return r, err
	}
	return r, c.domains(&r) // last, so that a person is asked only about an otherwise valid call
}

func (c *call) checkWords(r backend.Request) error {
	if r.Egress == "open" {
		return fmt.Errorf("egress 'open' is not permitted; use sandbox_research for unrestricted egress")
	}
	if !slices.Contains(c.opts.Egress, r.Egress) {
		return fmt.Errorf("egress mode %q is not in the allowlist (%s, open)", r.Egress, strings.Join(c.opts.Egress, ", "))
	}
	return c.checkImage(r.Image)
}

// checkImage returns why a model may not use an image.
func (c *call) checkImage(name string) error {
	if name != c.opts.Image && !slices.Contains(c.opts.Images, name) && (c.opts.Allowed == nil || !c.opts.Allowed(name)) {
		return fmt.Errorf("image %q is not in the allowlist (%s)", name, strings.Join(c.opts.Images, ", "))
	}
	return nil
}

// limits reads the argument "limits". It refuses malformed values, because a missing limit would go
// unnoticed. It refuses negative numbers, which the runner would take as unlimited, and numbers above
// 2^53, which float64 cannot represent exactly.
func (c *call) limits() (l runner.Limits, err error) {
	object, ok := c.args["limits"].(map[string]any)
	if !ok && c.args["limits"] != nil {
		return l, fmt.Errorf("limits must be an object")
	}
	a := args(object)
	for _, name := range []string{"memory", "cpus", "pids", "disk"} {
		if n, ok := a.numeric(name); !ok || !(n >= 0 && n <= 1<<53) {
			return l, fmt.Errorf("limits.%s must be a positive number", name)
		}
	}
	return runner.Limits{
		Memory: int64(a.number("memory")), CPUs: a.number("cpus"),
		PIDs: int64(a.number("pids")), Disk: int64(a.number("disk")),
	}, nil
}

// commandRequest reads the arguments of a command into r.
func (c *call) commandRequest(r *backend.Request) (err error) {
	if r.Command, err = c.args.required("command"); err != nil {
		return err
	}
	if strings.TrimSpace(r.Command) == "" {
		return fmt.Errorf("command is required")
	}
	if strings.ContainsRune(r.Command, 0) {
		return fmt.Errorf("command has a NUL byte")
	}
	if len(r.Command) > longestArg {
		return fmt.Errorf("command is longer than %d bytes: pass long text on stdin or in a file", longestArg)
	}
	env, err := c.args.table("env")
	if err != nil {
		return err
	}
	for k, v := range env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return fmt.Errorf("env %q is not a variable name name", k)
		}
		if len(k)+1+len(v) > longestArg {
			return fmt.Errorf("env %q is longer than %d bytes", k, longestArg)
		}
		r.Env = append(r.Env, k+"="+v)
	}
	slices.Sort(r.Env)
	r.Dir, r.Stdin = c.args.text("cwd"), c.args.text("stdin")
	if r.Dir != "" && !strings.HasPrefix(r.Dir, "/") {
		return fmt.Errorf("cwd %q is not absolute", r.Dir)
	}
	r.Queue = c.args.flag("queue")
	r.Timeout, err = c.opts.Ceilings.timeout(c.args.number("timeout_seconds"))
	return err
}

// longestArg is the kernel's limit for one argument or variable, in bytes without its NUL:
// MAX_ARG_STRLEN with 4 KiB pages, execve(2).
const longestArg = 32*4096 - 1

// seconds converts a number of seconds to a duration of at most [runner.Longest]. A positive number never becomes 0, which
// means no limit.
func seconds(n float64) time.Duration {
	if !(n > 0) {
		return 0
	}
	return max(time.Duration(min(n, runner.Longest.Seconds())*float64(time.Second)), time.Nanosecond)
}
