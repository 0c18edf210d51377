package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"demesne/cmd/internal/session"
	"demesne/internal/termsafe"
	"demesne/runner"
)

// egressModes repeats the names in package preset, which this program does not link: see package
// session. A test compares them.
var egressModes = []string{session.NoEgress, "package-managers", "open"}

// network holds the network options of a command line.
type network struct {
	mode, file     string
	allow, deny    []string
	openWithInputs bool
	learn, ask     bool
	askTime        time.Duration // 0: runner.AskTime
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
			help: "how long a connection waits for the answer (default 2m); without one it is denied, and the next one asks again"},
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
		return hinted(errors.New("is a URL, not a name"), "the name alone, such as example.com or example.com:443")
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
		return errors.New("does not end in a colon and a port inside (such as 127.0.0.1:8080:3000)")
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

// egress returns what the sandbox may reach, for package session.
func (n *network) egress() session.Egress {
	e := session.Egress{Mode: n.mode, File: n.file, Allow: n.allow, Deny: n.deny, GoProxy: n.goProxy, Learn: n.learn, OpenWithInputs: n.openWithInputs}
	if n.ask {
		e.Ask = n.waits()
	}
	return e
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
