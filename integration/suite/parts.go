package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// half is the tests that one user runs.
type half struct {
	name  string
	login string         // an ordinary user's name, if not the current user
	not   *regexp.Regexp // tests of the other half only, as FILE/TEST of package integration
	leave *regexp.Regexp // packages of the other half only
	skip  string         // pattern of tests that its packages leave out
	only  *regexp.Regexp // the only tests of its packages, if not nil
}

// Slow tests and packages that behave the same for every user belong to one half. The ordinary user's half has those that
// need no rights of root: builds, pulls, agents, kernels, MCP, the documents, the servers' protocols, and the rules and
// budgets that the proxy applies. Both halves run what the kernel could decide differently for root: ids, owners of files,
// mounts, control groups, networks, signals, escapes. Root's half has what an
// ordinary user cannot prepare on every machine. The packages of notUserPackages are pure, or run their
// tests as an ordinary user too when root starts them.
var (
	notRoot = regexp.MustCompile(`^(agent_(branch|budget|hosted|image|jobs|mcp|programs|project|renew|terminal|text|tools|transcript|tree|workspace)|` +
		`build(_input|_mounts|_output|_progress|_remote|_shapes|_warm)?|code_files|codes|devcontainer(_compose|_features)?|docs|doors|` +
		`egress_(budget|goproxy|learn|load|peers|secret|tools|trust)|examples(_build)?|halfway|` +
		`image_(archive|config|gc|maps|metadata|pull|refused|registry|root|store)|installers|jupyter|` +
		`mcp_(ask|client|code|commands|egress|files|frontends|image|jobs|model|modern|operator|script|secret|session|transport|turns|wire)|` +
		`outputs|path|push|recipes|repl|schema|serve_(agents|bounds|images|namespaces|operate|rest|secret|stored)|sessions_(key|turns)|skills|spare_shapes|streams)/|` +
		`/Test(Build(Cases|Steps|Places|Collected|Held|Lost)|Image(Names|Pull|PullPolicy)|Parallel|ProxyKilledEarly|Serve(KilledAny|PauseSoon))$`)
	notRootPackages = regexp.MustCompile(`^images/(archive|pull)$|^build(/devcontainer|/executor)?$|^client$|^kernels/code$|^mcp/filter$|^server/(inprocess|serve)$`)
	notUser         = regexp.MustCompile(`^(install(_packages)?|release)/|/Test(Page.*|Serve(E2B|Python|ACME|Retention|ToolTexts|Runs|Killed)|BuildCasesPeer)$`)
	notUserPackages = regexp.MustCompile(`^kernels(/driver|/languages)?$|^mcp(/hosttools)?$|^server(/(e2b|hostcmd|operate|page|rest|runs))?$|^session/audit$|` +
		`^proxy(/policy|/redact)?$|^integration/(module|release)$|^images/push$|^build/containerfile$|^runner/ipc$|^netns$|^rootfs/unpack$`)
	nowhere = regexp.MustCompile(`^\b$`)
	// notRace has tests that one goroutine runs, or whose work is that of other processes, which run without the race
	// detector. Root's half runs them where it leaves the rest of their package to that detector.
	notRace = regexp.MustCompile(`^Test(Fork(Large|Killed)|KeptKilled|Frames(Long|LongID|ManyErrors)|CodeErrors|HTTPBody|InputNames|Lines|MakeBounded|OutputBounded|WatchdogDiskFull)$`)
)

// halves returns the current user, and the ordinary one if there is one. Tests that the caller chose run in both.
func (s *suite) halves() []half {
	switch {
	case s.login == "":
		return []half{{name: "user", not: nowhere, leave: nowhere}}
	case s.pattern != "":
		return []half{{name: "root", not: nowhere, leave: nowhere}, {name: "user", login: s.login, not: nowhere, leave: nowhere}}
	}
	return []half{{name: "root", not: notRoot, leave: notRootPackages}, {name: "user", login: s.login, not: notUser, leave: notUserPackages}}
}

// part is what one process runs.
type part struct {
	binary
	half half
	name string
	args []string // of the program
	size int      // bytes of its sources, for an order
}

// parts compiles the tests and returns what to run, the largest first.
func (s *suite) parts(ctx context.Context) ([]part, error) {
	plain, err := s.compile(ctx, s.packages)
	if err != nil {
		return nil, err
	}
	var raced []binary
	if len(s.race) > 0 {
		if raced, err = s.compile(ctx, s.race, "-race"); err != nil {
			return nil, err
		}
	}
	var parts []part
	for _, h := range s.halves() {
		for _, b := range plain {
			if h.leave.MatchString(b.pkg) {
				continue
			}
			of := h
			if h.login == "" && slices.ContainsFunc(raced, func(r binary) bool { return r.pkg == b.pkg }) {
				of.only = notRace
			}
			if err := s.divide(&parts, b, of); err != nil {
				return nil, err
			}
		}
	}
	// The ordinary user's half runs those that skip names too. The processes that TestKill kills race on files only, each
	// command of a script is a process that starts slowly with the detector, and TestManual starts man for each page.
	for _, b := range raced {
		if err := s.divide(&parts, b, half{name: "race", not: nowhere, skip: "^Test(Kill|Manual|Scripts)$|" + notRace.String()}); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(b.size, a.size) })
	return parts, nil
}

var test = regexp.MustCompile(`(?m)^func (Test\w+|Fuzz\w+|Example\w*)\(`)

// divide appends the parts of b for h. Tests of package integration, and those that the caller chose, are listed by file.
func (s *suite) divide(parts *[]part, b binary, h half) error {
	files, err := filepath.Glob(b.pkg + "/*_test.go")
	if err != nil {
		return err
	}
	whole := part{binary: b, half: h, name: h.name + " " + b.pkg, args: []string{"-test.run=" + s.pattern, "-test.skip=" + h.skip}}
	if h.only != nil {
		whole.args = []string{"-test.run=" + h.only.String()}
	}
	empty := h.only != nil
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		whole.size += len(text)
		for _, m := range test.FindAllSubmatch(text, -1) {
			empty = empty && !h.only.Match(m[1])
		}
		if b.pkg != "integration" || s.pattern != "" {
			continue
		}
		var names []string
		file := strings.TrimSuffix(filepath.Base(f), "_test.go")
		for _, m := range test.FindAllSubmatch(text, -1) {
			name := string(m[1])
			if id := file + "/" + name; notRoot.MatchString(id) && notUser.MatchString(id) {
				return fmt.Errorf("%s is in no half", id)
			} else if name != "TestMain" && !h.not.MatchString(id) {
				names = append(names, name)
			}
		}
		if len(names) > 0 {
			run := fmt.Sprintf("-test.run=^(%s)$", strings.Join(names, "|"))
			*parts = append(*parts, part{b, h, h.name + " integration/" + file, []string{run}, len(text)})
		}
	}
	if (b.pkg != "integration" || s.pattern != "") && !empty {
		*parts = append(*parts, whole)
	}
	return nil
}
