package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"demesne/cmd/internal/session/egress"
	"demesne/internal/termsafe"
	"demesne/runner"
	"demesne/runner/client"
)

// egressModes repeats the names in package preset, which this program does not link: see package
// session/egress. A test compares them.
var egressModes = []string{egress.None, "package-managers", "open"}

// network holds the network options of a command line.
type network struct {
	mode, file     string
	allow, deny    []string
	openWithInputs bool
	learn, ask     bool
	askTime        time.Duration // 0: the default, the constant askTime
	goProxy        bool
	publish        []runner.Port
	secrets        map[string]*secret
	order          []string // names of secrets, in the order given
	found          []runner.Secret
}

// networkFlags returns the network flags of run and create.
func networkFlags(n *network) flagSet {
	return flagSet{
		{group: groupNetwork, long: "egress", arg: "MODE", complete: aWord, words: egressModes, set: n.setMode,
			help: "what may be reached: none, package-managers or open; demesne egress list MODE says what that is here (default none)"},
		{group: groupNetwork, long: "allow-domain", arg: "NAME[:PORT]", repeat: true, set: list(&n.allow, checkRule),
			help: "allow a name besides, or *.NAME for all below it, an address or a range of them; ports may be 443,8000-8010 or *, and are 80,443 if none are given"},
		{group: groupNetwork, long: "deny-domain", arg: "NAME[:PORT]", repeat: true, set: list(&n.deny, checkRule),
			help: "deny a name, on every port unless some are given, whatever else allows it"},
		{group: groupNetwork, long: "egress-file", arg: "FILE", complete: aFile, set: n.setFile,
			help: "take mode and rules from a policy file, in TOML or YAML"},
		{group: groupNetwork, long: "go-proxy", set: on(&n.goProxy),
			help: "have a Go module proxy at the command's own 127.0.0.1:8087, which GOPROXY names, for public modules and checksums; package-managers has it anyway"},
		{group: groupNetwork, long: "learn", set: on(&n.learn),
			help: "let everything public through and write it down, for demesne egress suggest; never with inputs"},
		{group: groupNetwork, long: "allow-open-with-inputs", set: on(&n.openWithInputs),
			help: "let a command have --egress open and files of yours: it can send them to anybody"},
		{group: groupNetwork, long: "publish", arg: "[ADDR:]PORT:INSIDE", repeat: true, set: n.addPublish,
			help: "listen on this machine, and connect to the server on port INSIDE of the sandbox; ADDR is 127.0.0.1 unless given, and ADDR:PORT may be unix:PATH"},
	}
}

func askFlag(n *network) flagSet {
	return flagSet{
		{group: groupNetwork, long: "ask", set: on(&n.ask),
			help: "ask on the terminal about each name and port that no rule is about; what the command writes waits meanwhile"},
		{group: groupNetwork, long: "ask-timeout", arg: "DURATION", set: durationFlag(&n.askTime),
			help: "how long a connection waits for the answer (default 1m); without one it is denied, and the next one asks again"},
	}
}

func (n *network) setMode(s string) error {
	n.mode = s
	return oneOf(s, egressModes)
}

// setFile checks that the policy file exists. The file is read when it is used.
func (n *network) setFile(s string) error {
	if s == "" {
		return errors.New("empty")
	}
	abs, err := filepath.Abs(s)
	if err == nil {
		_, err = os.Stat(abs)
	}
	n.file = s
	return reason(err)
}

// checkRule is the part of the check that needs no parser; the runner does the rest.
func checkRule(s string) error {
	switch {
	case s == "":
		return errors.New("empty")
	case strings.Contains(s, "://") && !strings.HasPrefix(s, "tcp://"):
		return hinted(errors.New("is a URL, not a name"), "use only the name, such as example.com or example.com:443")
	case strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return errors.New("has a space or a control character")
	}
	return nil
}

// addPublish parses PORT:INSIDE, ADDR:PORT:INSIDE or unix:PATH:INSIDE.
func (n *network) addPublish(s string) error {
	listen, inside, found := cutLast(s, ':')
	to, ok := parsePort(inside)
	if !found || !ok {
		return errors.New("does not end in a colon and the port in the sandbox (such as 127.0.0.1:8080:3000)")
	}
	listen, err := listenAt(listen)
	if err != nil {
		return err
	}
	n.publish = append(n.publish, runner.Port{Listen: listen, To: to})
	return nil
}

func listenAt(s string) (string, error) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		if path == "" {
			return "", errors.New("no path after unix:")
		}
		abs, err := filepath.Abs(path)
		return "unix:" + abs, err
	}
	if port, ok := parsePort(s); ok {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port).String(), nil
	}
	at, err := netip.ParseAddrPort(s)
	if err != nil || at.Port() == 0 {
		return "", fmt.Errorf("%q is not a port, an ADDRESS:PORT or a unix:PATH to listen on (such as 127.0.0.1:8080)", s)
	}
	return at.String(), nil
}

func cutLast(s string, sep byte) (before, after string, found bool) {
	i := strings.LastIndexByte(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

func parsePort(s string) (uint16, bool) {
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err == nil && n != 0 && s[0] != '+'
}

// found is the result of find: the runner's egress settings, or an error.
type found struct {
	egress *runner.Egress
	err    error
}

// restore adds the upstream proxy and the secrets to the spec of a restarted keyed sandbox, because no file
// stores them. It must be called after f was received.
func (f *found) restore(spec *runner.Spec) {
	if f.egress != nil {
		spec.Egress.Upstream, spec.Egress.Secrets = f.egress.Upstream, f.egress.Secrets
	}
}

// wanted reports whether any option asks for egress.
func (n *network) wanted() bool {
	return n.mode != "" || n.file != "" || n.allow != nil || n.deny != nil || n.learn || n.ask || n.goProxy || n.order != nil
}

// find resolves the options in the background. Reading a policy file or this host's configuration takes some
// milliseconds, in which the caller can do other work.
func (n *network) find(ctx context.Context, a *app, verb string) <-chan found {
	answer := make(chan found, 1)
	if !n.wanted() {
		answer <- found{}
		return answer
	}
	go func() {
		w := egress.Wants{Mode: n.mode, File: n.file, Allow: n.allow, Deny: n.deny, GoProxy: n.goProxy, Gateway: n.learn || n.ask || n.order != nil}
		e, notes, err := egress.Find(ctx, w, func(k string) string { v, _ := a.env(k); return v })
		for _, line := range notes {
			a.say(verb + ": invalid mirror: " + line)
		}
		if e != nil && err == nil {
			err = n.findSecrets(a)
			e.Secrets = n.found
		}
		answer <- found{e, n.explain(err)}
	}()
	return answer
}

func (n *network) explain(err error) error {
	var wrong *egress.Error
	if !errors.As(err, &wrong) {
		return err
	}
	return hinted(err, "demesne egress lint %s lists all errors in it", n.file)
}

// apply sets the egress settings in spec. Decisions are logged to a file of the given name, outside the
// sandbox's reach.
func (n *network) apply(spec *runner.Spec, f found, name string) error {
	spec.Publish = n.publish
	if f.egress == nil || f.err != nil {
		return f.err
	}
	root, err := client.OutputRoot()
	if err != nil {
		return err
	}
	log, err := egress.LogFile(root, name)
	if err != nil {
		return err
	}
	f.egress.OpenWithInputs, f.egress.Learn, f.egress.Log = n.openWithInputs, n.learn, log
	if n.ask {
		f.egress.Ask = runner.Duration(n.waits())
	}
	spec.Egress = f.egress
	return nil
}

// tidyLog removes the log if it is empty; otherwise it returns its path.
func tidyLog(path string) string {
	if info, err := os.Lstat(path); err == nil && info.Size() == 0 && os.Remove(path) == nil {
		return ""
	}
	return path
}

// blockedLines is how many denials are printed; the log has all of them.
const blockedLines = 20

// tellBlocked prints the connections of a command that were denied.
func (a *app) tellBlocked(r *runner.Result) {
	for i, b := range r.Denied {
		if i == blockedLines {
			fmt.Fprintf(a.stderr, "blocked: and %d more, in %s\n", len(r.Denied)-i, termsafe.Line(r.EgressLog))
			return
		}
		fmt.Fprintf(a.stderr, "blocked: %s\n", termsafe.Line(b.String()))
	}
}
