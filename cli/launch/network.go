package launch

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"demesne/cli/app"
	"demesne/cli/stream"
	"demesne/internal/cmdline"
	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/session"
)

// Network holds the network options of a command line.
type Network struct {
	Mode, File     string
	Allow, deny    []string
	Group          string
	openWithInputs bool
	Learn, Ask     bool
	askTime        time.Duration // 0: runner.AskTime
	goProxy        bool
	packageAge     time.Duration // 0: any
	ageExcept      []string
	Publish        []runner.Port
	hostPorts      []uint16
	secrets        map[string]*secret
	order          []string // names of secrets, in the order of their flags
	found          []runner.Secret
}

// Flags returns the network flags of run and create.
func (n *Network) Flags() cmdline.Flags {
	return cmdline.Flags{
		{Group: app.GroupNetwork, Long: "egress", Arg: "MODE", Words: runner.EgressModes(), Set: cmdline.Word(&n.Mode, runner.EgressModes()),
			Help: "destinations to allow: " + text.Or(runner.EgressModes()) + "; demesne egress list MODE shows the rules (default none)"},
		{Group: app.GroupNetwork, Long: "allow-domain", Arg: "NAME[:PORT]", Repeat: true, Set: cmdline.List(&n.Allow, CheckRule),
			Help: "also allow a name, *.NAME for all names below it, an address or a range such as 10.0.0.0/8 or 2001:db8::/32; ports such as 443,8000-8010 or * (default 80,443)"},
		{Group: app.GroupNetwork, Long: "deny-domain", Arg: "NAME[:PORT]", Repeat: true, Set: cmdline.List(&n.deny, CheckRule),
			Help: "deny a name, even if another rule allows it (default on all ports)"},
		{Group: app.GroupNetwork, Long: "egress-file", Arg: "FILE", Complete: cmdline.File, Set: n.setFile,
			Help: "take mode and rules from a policy file, in TOML"},
		{Group: app.GroupNetwork, Long: "go-proxy", Set: cmdline.On(&n.goProxy),
			Help: "provide a Go module proxy inside, at 127.0.0.1:8087, and set GOPROXY; package-managers includes it"},
		{Group: app.GroupNetwork, Long: "package-age", Arg: "AGE", Set: cmdline.Age(&n.packageAge),
			Help: "hide versions of npm's, Python's, Go's and Rust's packages that are younger, such as 7d, and refuse their files"},
		{Group: app.GroupNetwork, Long: "package-age-except", Arg: "NAME", Repeat: true, Set: cmdline.List(&n.ageExcept, nil),
			Help: "a package that may be younger"},
		{Group: app.GroupNetwork, Long: "learn", Set: cmdline.On(&n.Learn),
			Help: "allow all public destinations and log them, for demesne egress suggest; not with inputs"},
		{Group: app.GroupNetwork, Long: "allow-open-with-inputs", Set: cmdline.On(&n.openWithInputs),
			Help: "allow --egress open together with inputs: the command can send them anywhere"},
		{Group: app.GroupNetwork, Long: "publish", Arg: "[ADDR:]PORT:INSIDE", Repeat: true, Set: n.addPublish,
			Help: "listen on this machine, and forward to port INSIDE of the sandbox; ADDR:PORT can be unix:PATH (default ADDR 127.0.0.1)"},
		{Group: app.GroupNetwork, Long: "host-port", Arg: "127.0.0.1:PORT", Repeat: true, Set: n.addHostPort,
			Help: "let the command reach this port of this machine's loopback, at the same address; the server there obeys the command"},
	}
}

// GroupFlag is a flag of run and create.
func (n *Network) GroupFlag() cmdline.Flags {
	return cmdline.Flags{{Group: app.GroupNetwork, Long: "group", Arg: "NAME", Set: SetGroup(&n.Group),
		Help: "put the sandbox in a group: its sandboxes reach each other by --name, on all TCP ports that they listen on; commands know it as NAME.GROUP"}}
}

// SetGroup returns the setter of a flag that names a group.
func SetGroup(to *string) func(string) error {
	return func(s string) error {
		*to = s
		return runner.CheckMember(s)
	}
}

func (n *Network) AskFlags() cmdline.Flags {
	return cmdline.Flags{
		{Group: app.GroupNetwork, Long: "ask", Set: cmdline.On(&n.Ask),
			Help: "ask on the terminal about each name and port without a rule; output waits for the answer"},
		{Group: app.GroupNetwork, Long: "ask-timeout", Arg: "DURATION", Set: cmdline.Duration(&n.askTime),
			Help: "how long a connection waits for the answer before it is denied (default 2m); the next connection asks again"},
	}
}

// setFile checks that the policy file exists. The file is read when it is used.
func (n *Network) setFile(s string) error {
	if s == "" {
		return errors.New("empty")
	}
	abs, err := filepath.Abs(s)
	if err == nil {
		_, err = os.Stat(abs)
	}
	n.File = s
	return fsutil.Reason(err)
}

// CheckRule is the part of the check that needs no parser; the runner does the rest.
func CheckRule(s string) error {
	switch {
	case s == "":
		return errors.New("empty")
	case strings.Contains(s, "://") && !strings.HasPrefix(s, "tcp://"):
		return text.Hinted(errors.New("is a URL, not a name"), "use only the name, such as example.com or example.com:443")
	case strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return errors.New("has a space or a control character")
	}
	return nil
}

// addPublish parses PORT:INSIDE, ADDR:PORT:INSIDE or unix:PATH:INSIDE.
func (n *Network) addPublish(s string) error {
	listen, inside, found := cutLast(s, ':')
	to, ok := parsePort(inside)
	if !found || !ok {
		return errors.New("does not end in a colon and the port in the sandbox (such as 127.0.0.1:8080:3000)")
	}
	listen, err := listenAt(listen)
	if err != nil {
		return err
	}
	n.Publish = append(n.Publish, runner.Port{Listen: listen, To: to})
	return nil
}

// addHostPort allows a port of the host's loopback, and makes the sandbox's own loopback lead there.
func (n *Network) addHostPort(s string) error {
	at, err := netip.ParseAddrPort(s)
	if err != nil || at.Port() == 0 || at.Addr() != netip.AddrFrom4([4]byte{127, 0, 0, 1}) {
		return errors.New("not 127.0.0.1:PORT")
	}
	n.hostPorts, n.Allow = append(n.hostPorts, at.Port()), append(n.Allow, s)
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

// egress returns the egress options for package session.
func (n *Network) egress() session.Egress {
	e := session.Egress{Mode: n.Mode, File: n.File, Allow: n.Allow, Deny: n.deny, GoProxy: n.goProxy, Learn: n.Learn, OpenWithInputs: n.openWithInputs, Group: n.Group, HostPorts: n.hostPorts,
		PackageAge: n.packageAge, PackageAgeExcept: n.ageExcept}
	if n.Ask {
		e.Ask = n.waits()
	}
	return e
}

// blockedLines is how many denials are printed; the log has all of them.
const blockedLines = 20

// TellBlocked prints the connections of a command that were denied, each with the words that would allow it, and the connections
// to names that do not resolve. persists means that the rules of its sandbox can be changed.
func TellBlocked(c *app.Console, r *runner.Result, persists bool) {
	for i, b := range r.Denied {
		if i == blockedLines {
			fmt.Fprintf(c.Stderr, "blocked: and %d more, in %s\n", len(r.Denied)-i, text.SafeLine(r.EgressLog))
			return
		}
		line, word := b.String(), "blocked"
		if b.Failed {
			word = "unreachable"
		}
		switch {
		case b.Allow == "":
		case persists:
			line += "; to allow it: demesne egress allow " + r.Sandbox + " " + b.Allow
		default:
			line += "; to allow it: --allow-domain " + b.Allow
		}
		fmt.Fprintf(c.Stderr, "%s: %s\n", word, text.SafeLine(line))
	}
}

// waits returns how long a connection waits for an answer.
func (n *Network) waits() time.Duration { return cmp.Or(n.askTime, runner.AskTime) }

// secret is a credential whose value was not read yet.
type secret struct{ source, host, header string }

// CanAsk returns an error if --ask is impossible. The question and the command must not read from one terminal
// at the same time.
func CanAsk(c *app.Console, n *Network, p *ProcessOptions) error {
	if !n.Ask {
		if n.askTime > 0 {
			return text.Hinted(errors.New("--ask-timeout: needs --ask"), "--ask --ask-timeout 5m")
		}
		return nil
	}
	if !p.TTY && p.Interactive && stream.IsTerminal(c.Stdin) {
		return text.Hinted(errors.New("--ask: the command reads from the terminal"), "with -t, it does so through demesne, which can ask in between")
	}
	f, err := os.OpenFile(stream.Controlling, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return text.Hinted(errors.New("--ask: there is no terminal to ask on"), "--allow-domain NAME allows without a question; --learn records what would be asked")
	}
	return f.Close()
}

// asker returns a function that asks the user at the terminal, one question at a time, or nil without --ask. A
// question that waited too long for its turn is skipped: the runner has denied it.
func asker(a *app.App, verb string, n *Network) func(runner.Question, []string) (allow, answered bool) {
	if !n.Ask {
		return nil
	}
	a.OpenQuestions()
	return func(q runner.Question, _ []string) (allow, answered bool) {
		return a.Question(fmt.Sprintf("%s: allow access to %s?", verb, fmt.Sprintf("%s:%d", q.Name, q.Port)), n.waits())
	}
}
