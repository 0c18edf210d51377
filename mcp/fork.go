package mcp

import (
	"fmt"
	"slices"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/runner"
	"demesne/session"
)

// has reports whether a tool set is offered.
func (o *Options) has(set string) bool { return slices.Contains(o.Sets, set) }

// rarely returns an argument that clients get with the set "sandboxes" only. It is understood without the set too.
func (o *Options) rarely(p property) property {
	p.hidden = !o.has(setSandboxes)
	return p
}

// Arguments of sandbox_create in the set "sandboxes".
var (
	ttlField  = field("ttl_seconds", "number", "Remove the sandbox when unused for so long. Default and most 172800.")
	userField = field("user", "string", "User of the image to run as: a name or uid, with :group if wanted. Default the image's, else root.")
)

// lifeRequest reads those arguments. They are unknown without the set.
func (c *call) lifeRequest(r *session.Request) error {
	if !c.opts.has(setSandboxes) {
		return nil
	}
	n, ok := c.args.seconds("ttl_seconds")
	if !ok || n < 0 || n > runner.Longest.Seconds() {
		return fmt.Errorf("ttl_seconds must be a number of seconds, at most %.0f", runner.Longest.Seconds())
	}
	r.Create.Spec.TTL = runner.Duration(n * float64(time.Second))
	r.Create.User = c.args.text("user")
	if strings.ContainsRune(r.Create.User, 0) || len(r.Create.User) > longestArg {
		return fmt.Errorf("user %s is not a user", clipped(r.Create.User))
	}
	return nil
}

func forkTool() tool {
	return tool{
		name: "sandbox_fork",
		description: "Copy a sandbox with its files, and its processes if it has any: the copy and the original then go on apart. " +
			"Use it to try something without losing the state.",
		in:     arguments(boxField, nameField),
		out:    madeFields,
		hints:  hints{openWorld: true},
		handle: (*call).forkSandbox,
	}
}

func (c *call) forkSandbox() (*sdk.CallToolResult, error) {
	id, err := c.args.required("sandbox_id")
	if err != nil {
		return nil, err
	}
	sb, err := c.engine.Fork(c.ctx, id, c.args.text("name"))
	if err != nil {
		return nil, err
	}
	return c.answerMade(sb), nil
}

func copyTool() tool {
	return tool{
		name:        "sandbox_copy",
		description: "Copy a file or directory from one sandbox to another. Named pipes, sockets and devices are skipped.",
		in: arguments(boxField, field("src", "string", "Absolute path in it.").must(),
			field("to_sandbox_id", "string", "The sandbox that gets the copy.").must(), field("dst", "string", "Absolute path of the copy; with / at the end, of its directory.").must()),
		out: copiedFields, textual: true,
		hints:  hints{destructive: true, idempotent: true},
		handle: (*call).copyAcross,
	}
}

func (c *call) copyAcross() (*sdk.CallToolResult, error) {
	id, src, to, dst := c.args.text("sandbox_id"), c.args.text("src"), c.args.text("to_sandbox_id"), c.args.text("dst")
	if id == "" || src == "" || to == "" || dst == "" {
		return nil, fmt.Errorf("sandbox_id, src, to_sandbox_id and dst are required")
	}
	watch, stop := c.watch()
	defer stop()
	did, err := c.engine.CopyBetween(c.ctx, id, src, to, dst, watch)
	if err != nil {
		return nil, err
	}
	return copyResult(fmt.Sprintf("copied: %s -> %s", src, dst), did), nil
}

func limitsTool() tool {
	return tool{
		name:        "sandbox_limits",
		description: "Change memory, cpus or pids of a sandbox that runs. Others stay as they are, and pids cannot rise above the first value.",
		in:          arguments(boxField, limitsAlso.must()),
		hints:       hints{destructive: true, idempotent: true},
		handle:      (*call).changeLimits,
	}
}

// changeLimits changes limits of a live sandbox, within the ceilings of new ones.
func (c *call) changeLimits() (*sdk.CallToolResult, error) {
	id, err := c.args.required("sandbox_id")
	if err != nil {
		return nil, err
	}
	asked, err := c.limits()
	if err != nil {
		return nil, err
	}
	if asked == (runner.Limits{}) {
		return nil, fmt.Errorf("limits: one of memory, cpus and pids is required")
	}
	if _, _, err := granted(c.opts.Policy, asked); err != nil {
		return nil, err
	}
	if err := c.engine.ChangeLimits(c.ctx, id, asked); err != nil {
		return nil, err
	}
	return answer("changed: "+id, nil), nil
}
