// Package network has the verbs egress and secret: what sandboxes may reach, and with which credentials.
//
// egress changes the rules of a running sandbox through the runner, and starts demesne-proxy for everything that parses rules
// or logs. secret stores credentials in the vault. A value goes through a pipe, and never through an argument or a
// variable of the environment.
package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/cli/app"
	"demesne/cli/launch"
	"demesne/internal/cmdline"
	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/runner/client"
	"demesne/session"
)

// Egress returns demesne egress.
func Egress() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "egress", Usage: []string{
				"list [--json] [MODE]", "lint FILE…", "allow ID NAME…", "deny ID NAME…",
				"log [--json] ID|LOG", "suggest [--json] ID|LOG", "replay [--json] POLICY ID|LOG",
			},
			Summary: "show and change the network rules of sandboxes",
			About: `list prints the modes of --egress, or the rules of one mode on this machine. These include the mirrors that its tools
are configured to use. lint reports the errors in policy files.

allow and deny change the rules of a sandbox that has a network, for new connections.

log prints the logged decisions of a run or a sandbox. suggest prints a policy file that allows everything that the log
shows as allowed. replay reports the connections in the log that a policy would deny, and exits 1 if there are any.`,
			Examples: []cmdline.Example{
				{Says: "list what package-managers allows here", Line: "demesne egress list package-managers"},
				{Says: "allow one more name in a sandbox", Line: "demesne egress allow build api.example.com:443"},
				{Says: "make a policy from a run that could reach everything", Line: "demesne run --learn --json=run.json -- make fetch; demesne egress suggest $(jq -r .egress_log run.json) > policy.toml"},
				{Says: "test this policy with the log of a sandbox", Line: "demesne egress replay policy.toml build"},
			},
			Words: egressVerbs(),
		},
		New: func(a *app.App) app.Options { return &egressOptions{App: a} },
	}
}

// egressVerb is a verb of demesne egress. If run is nil, demesne-proxy is executed with the same arguments;
// operand logAt, a sandbox, is first replaced by its log.
type egressVerb struct {
	name     string
	min, max int
	logAt    int // index of the operand that names a log or its sandbox; -1: no operand
	run      func(egressTool, []string) (int, error)
}

func egressTable() []egressVerb {
	const many = 1 << 20
	return []egressVerb{
		{"list", 0, 1, -1, nil},
		{"lint", 1, many, -1, nil},
		{"allow", 2, many, -1, func(t egressTool, args []string) (int, error) {
			return t.change(runner.EgressChange{Sandbox: args[0], Allow: args[1:]})
		}},
		{"deny", 2, many, -1, func(t egressTool, args []string) (int, error) {
			return t.change(runner.EgressChange{Sandbox: args[0], Deny: args[1:]})
		}},
		{"log", 1, 1, 0, nil},
		{"suggest", 1, 1, 0, nil},
		{"replay", 2, 2, 1, nil},
	}
}

func egressVerbs() (names []string) {
	for _, v := range egressTable() {
		names = append(names, v.name)
	}
	return names
}

type egressOptions struct {
	*app.App
	json bool
}

func (o *egressOptions) Flags() cmdline.Flags { return app.JSONFlag(&o.json) }

func (o *egressOptions) Run(args []string) (int, error) {
	if len(args) == 0 {
		return 0, text.Hinted(errors.New("needs a verb"), "demesne egress %s", strings.Join(egressVerbs(), " | "))
	}
	if err := cmdline.OneOf(args[0], egressVerbs()); err != nil {
		return 0, fmt.Errorf("%q: %w", args[0], err)
	}
	table := egressTable()
	v := table[slices.IndexFunc(table, func(v egressVerb) bool { return v.name == args[0] })]
	rest := slices.Clone(args[1:])
	if len(rest) < v.min || len(rest) > v.max {
		return 0, text.Hinted(fmt.Errorf("%s: wrong number of operands", v.name), "demesne egress --help shows the operands")
	}
	if v.run != nil {
		return v.run(egressTool{o.App}, rest)
	}
	if v.logAt >= 0 {
		var err error
		if rest[v.logAt], err = (egressTool{o.App}).log(rest[v.logAt]); err != nil {
			return 0, err
		}
	}
	return 0, becomeEgress(v.name, o.json, rest)
}

// egressTool adds to app the steps that the verbs of demesne egress share.
type egressTool struct{ *app.App }

// change changes the rules of a sandbox.
func (t egressTool) change(c runner.EgressChange) (int, error) {
	for _, rule := range slices.Concat(c.Allow, c.Deny) {
		if err := launch.CheckRule(rule); err != nil {
			return 0, fmt.Errorf("rule %q: %w", rule, err)
		}
	}
	return t.WithEngine(func(ctx context.Context, eng session.Engine) (int, error) { return 0, eng.ChangeEgress(ctx, c) })
}

// log returns the path of the log that arg names: a file, or a sandbox's log.
func (t egressTool) log(arg string) (path string, err error) {
	if strings.Contains(arg, "/") || fsutil.Exists(arg) {
		return arg, nil
	}
	_, err = t.WithEngine(func(ctx context.Context, eng session.Engine) (int, error) {
		info, err := eng.Inspect(ctx, arg)
		if err == nil && (info.Spec.Egress == nil || info.Spec.Egress.Log == "") {
			err = fmt.Errorf("sandbox %q: has no network, so there is no log", arg)
		}
		if err == nil {
			path = info.Spec.Egress.Log
		}
		return 0, err
	})
	return path, err
}

// becomeEgress executes demesne-proxy in place of this program.
func becomeEgress(verb string, json bool, args []string) error {
	path, err := client.FindProgram(session.EgressProgram)
	if err != nil {
		return err
	}
	argv := []string{session.EgressProgram, verb}
	if json {
		argv = append(argv, "--json")
	}
	argv = append(append(argv, "--"), args...)
	if err := unix.Exec(path, argv, os.Environ()); err != nil {
		return fmt.Errorf("start %q: %w", path, err)
	}
	return nil
}
