package mcp

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"demesne/images"
	"demesne/images/imageref"
	"demesne/runner"
	"demesne/session"
)

// The arguments that script, create and exec share. The first four are part of the original tool
// interface; demesne added the others.

func (o *Options) imageField() property {
	return field("image", "string", "Root filesystem: "+o.imageNames()+". host is this machine's /usr and needs no download. Default "+o.Image+".").also("The operator can allow others in DEMESNE_ALLOWED_IMAGES, and they are named here.")
}

// imagesShown is how many images a text names.
const imagesShown = 24

func (o *Options) imageNames() string {
	text := strings.Join(o.Images[:min(len(o.Images), imagesShown)], ", ")
	if more := len(o.Images) - imagesShown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// egressDefault returns the mode of a call that names none: usual, or none if the operator does not allow that.
func (o *Options) egressDefault(usual string) string {
	if slices.Contains(o.Egress, usual) {
		return usual
	}
	return "none"
}

func (o *Options) egressField(fallback string) property {
	return field("egress", "string", "Default "+fallback+".").with("enum", o.Egress)
}

func (o *Options) filesField() property {
	return listOf("files", "Host files to show read-only at /in/<basename>. Must be absolute and inside one of the configured mount roots: "+o.Mounts.String()+". PATH:NAME names it; equal names get -2, -3.").also("An object with path and name is understood too. A number stands before the extension of a file; the result then has each name.")
}

// alsoFilesField is filesField for the other tools: the roots may be many.
func alsoFilesField() property {
	return listOf("files", "As in sandbox_script.")
}

func dirsField() property { return listOf("directories", "Likewise.") }

var (
	timeoutField = field("timeout_seconds", "number", "Default 48 h.").also("Then the command is killed, with everything that it started. A duration such as \"1m\" is understood too.")
	outputField  = field("max_output_bytes", "integer", fmt.Sprintf("Of stdout, its head and tail; a file has the rest. Default %d.", defaultOutput)).also("At most 1048576. It bounds stderr too, of which the last 16 KiB are there.")
	briefOutput  = fmt.Sprintf("Default %d.", defaultOutput)
	envField     = tableOf("env", "").also("Environment variables for the command. Nothing else of the host's environment is passed.")
	stdinField   = field("stdin", "string", "").also("What the command reads on standard input.")
	domainsField = listOf("allowed_domains", "Hosts in addition to egress: name, *.name or name:port. The user must accept unlisted ones.").also("A name without a port means ports 80 and 443. The operator lists hosts in DEMESNE_ALLOWED_DOMAINS.")
	nameField    = field("name", "string", "Usable as sandbox_id.").also("Letters, digits and _.-, at most 63.")
	keyField     = field("key", "string", "The same key finds the same sandbox again, with its files and settings.").also("Omitted arguments keep its settings; a different setting is an error.")
	replaceField = field("replace", "boolean", "First delete the key's sandbox.").also("Its files are lost.")
	queueField   = field("queue", "boolean", "Wait for earlier calls with queue; they run one at a time.")
	limitsField  = property{name: "limits", schema: arguments(
		field("memory", "integer", ""), field("cpus", "number", ""), field("pids", "integer", ""), field("disk", "integer", ""),
	)}.described(limitsText)
)

// limitsAlso is limitsField for the other tools.
var limitsAlso = limitsField.described("As in sandbox_script.").with("properties", known(fieldsOf(limitsField.schema)))

// limitsText has the defaults of package runner.
var limitsText = fmt.Sprintf("memory, disk: bytes. Default: %s, %d GiB disk, %d pids, all cpus.", session.DefaultMemory, runner.DefaultDisk>>30, runner.DefaultPIDs)

func cwdField(fallback string) property {
	return field("cwd", "string", "Default "+fallback+".").also("Directory to run in, absolute inside the sandbox.")
}

// sandboxRequest reads the arguments that script and create share. If the egress argument is absent or
// not a string, it uses fallback.
func (c *call) sandboxRequest(fallback string) (session.Request, error) {
	var r session.Request
	b := &r.Create
	b.Spec.Name, b.Spec.Key, b.Spec.Replace = c.args.text("name"), c.args.text("key"), c.args.flag("replace")
	if b.Spec.Replace && b.Spec.Key == "" {
		return r, fmt.Errorf("replace: needs a key")
	}
	if err := c.rootAndMode(b, fallback); err != nil {
		return r, err
	}
	files, err1 := c.args.inputs("files")
	dirs, err2 := c.args.inputs("directories")
	if err := cmp.Or(err1, err2); err != nil {
		return r, err
	}
	var err error
	if b.Spec.Inputs, c.inputs, err = c.opts.Mounts.inputs(files, dirs); err != nil {
		return r, err
	}
	if c.args.flag("ask") {
		if b.Egress.Ask = runner.AskTime; c.args.flag("background") {
			return r, fmt.Errorf("ask: not possible with background")
		}
	}
	asked, err := c.limits()
	if err != nil {
		return r, err
	}
	var unasked []string
	if b.Spec.Limits, unasked, err = granted(c.opts.Policy, asked); err != nil {
		return r, err
	}
	b.Unasked = append(unasked, b.Unasked...)
	if err := c.secretsRequest(&r); err != nil {
		return r, err
	}
	return r, c.domains(&r) // last, so that a person is asked only about an otherwise valid call
}

// rootAndMode reads the image and the egress mode of a sandbox.
func (c *call) rootAndMode(b *session.CreateOptions, fallback string) error {
	image, mode := c.args.text("image"), c.args.text("egress")
	if image == "" {
		image, b.Unasked = c.opts.Image, append(b.Unasked, "image")
	}
	if mode == "" {
		mode, b.Unasked = c.opts.egressDefault(fallback), append(b.Unasked, "egress")
	}
	if mode == "open" {
		return c.opts.Research.RefuseOpen()
	}
	if !slices.Contains(c.opts.Egress, mode) {
		return c.hinted(fmt.Errorf("egress mode %q is not in the allowlist (%s, open)", mode, strings.Join(c.opts.Egress, ", ")), "allowed_domains names single hosts")
	}
	b.Egress.Mode = mode
	var err error
	b.Image, b.Pull, err = c.image(image)
	return err
}

// image returns the image that a model names, and whether a registry may be asked for it.
func (c *call) image(name string) (ref imageref.Ref, pull images.PullPolicy, err error) {
	ref, pull, err = c.opts.Policy.Image(name)
	if err != nil {
		err = c.hinted(fmt.Errorf("image %q is not in the allowlist (%s)", name, c.opts.imageNames()), "ask the user to add it to DEMESNE_ALLOWED_IMAGES")
	}
	return ref, pull, err
}

// limitUnits says in which unit a limit is.
var limitUnits = map[string]string{
	"memory": "bytes, such as 536870912 for 512 MiB", "disk": "bytes, such as 1073741824 for 1 GiB", "cpus": "processors, such as 1.5", "pids": "processes",
}

// limits reads the argument "limits". It refuses malformed values, because a missing limit would go
// unnoticed. It refuses negative numbers, which the runner would take as unlimited, and numbers above
// 2^53, which float64 cannot represent exactly.
func (c *call) limits() (l runner.Limits, err error) {
	object, ok := c.args["limits"].(map[string]any)
	if !ok && c.args["limits"] != nil {
		return l, fmt.Errorf("limits must be an object")
	}
	a, known := args(object), []string{"memory", "cpus", "pids", "disk"}
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if !slices.Contains(known, name) {
			return l, fmt.Errorf("limits: unknown member %s; known: %s", clipped(name), strings.Join(known, ", "))
		}
	}
	for _, name := range known {
		if n, ok := a.numeric(name); !ok || !(n >= 0 && n <= 1<<53) {
			return l, fmt.Errorf("limits.%s must be a positive number of %s", name, limitUnits[name])
		}
	}
	return runner.Limits{
		Memory: int64(a.number("memory")), CPUs: a.number("cpus"),
		PIDs: int64(a.number("pids")), Disk: int64(a.number("disk")),
	}, nil
}

// commandRequest reads the arguments of a command into r.
func (c *call) commandRequest(r *session.Request) (err error) {
	if err := c.whatRequest(r); err != nil {
		return err
	}
	cmd := &r.Run.Command
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
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	slices.Sort(cmd.Env)
	if cmd.Dir = cmp.Or(c.args.text("cwd"), "/out"); !strings.HasPrefix(cmd.Dir, "/") {
		return fmt.Errorf("cwd %q is not absolute", cmd.Dir)
	}
	limit, err := c.timeLimit()
	cmd.Timeout, cmd.Account = cmp.Or(limit, runner.Longest), true
	r.Run.Stdin, r.Run.Queue, r.Run.Shown = c.args.text("stdin"), c.args.flag("queue"), c.args.maxOutput()
	r.Run.Logs, r.Run.Manifest = true, true
	return err
}

// timeLimit reads timeout_seconds. It is strict, as for the other limits.
func (c *call) timeLimit() (time.Duration, error) {
	n, ok := c.args.seconds("timeout_seconds")
	if !ok {
		return 0, fmt.Errorf("timeout_seconds must be a number of seconds")
	}
	return timeout(c.opts.Policy, n)
}

// maxOutput reads max_output_bytes.
func (a args) maxOutput() int {
	n := a.number("max_output_bytes")
	if !(n >= 1) {
		return defaultOutput
	}
	return int(min(n, runner.OutputKept))
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
