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
	not   *regexp.Regexp // tests of the other half only
	leave *regexp.Regexp // packages of the other half only
	skip  string         // pattern of tests that its packages leave out
}

// Tests and packages that behave the same for every user, and cost much, belong to one half. The ordinary user's half has
// those that need no right of root's, and root's half those that an ordinary user of every machine could not prepare. The
// packages of notUserPackages are pure, or run their tests as an ordinary user too when root starts them.
var (
	notRoot = regexp.MustCompile(`^Test(Agent(Programs|Image.*|Terminal|Hosted|MCPPrograms|Fork.*|Piped|RateLimit|Many|ManyChildren)|` +
		`Build(Shapes|Cases|Debian|Add.*|Layers|Progress.*|UnknownBase|CacheSharing|Parallel|MountKinds|SecretForms|SSHKeys|Sockets|Attributes)|` +
		`Devcontainer.*|Halfway.*|MCPKilledUntold|RecipeDebian|PushCut|ImageMaps.*|ImageRootInside|Jupyter.*|Docs.*|Dependency|EgressSecretTools)$`)
	notRootPackages = regexp.MustCompile(`^images/(archive|pull)$|^cmd/(demesne-build|internal/code)$`)
	notUser         = regexp.MustCompile(`^Test(Page.*|Serve(E2B|ACME|Retention|ToolTexts|Runs|Killed)|MCPKilled|BuildCasesPeer)$`)
	notUserPackages = regexp.MustCompile(`^(kernels|mcp|server|proxy)(/|$)|^images/(push|build)$|^runner/ipc$|^netns$|^rootfs/unpack$`)
	nowhere         = regexp.MustCompile(`^\b$`)
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
			if h.leave.MatchString(b.pkg) || h.login == "" && slices.ContainsFunc(raced, func(r binary) bool { return r.pkg == b.pkg }) {
				continue
			}
			if err := s.divide(&parts, b, h); err != nil {
				return nil, err
			}
		}
	}
	for _, b := range raced { // the processes that TestKill kills race on files only
		if err := s.divide(&parts, b, half{name: "race", not: nowhere, skip: "^TestKill$"}); err != nil {
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
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		whole.size += len(text)
		if b.pkg != "integration" || s.pattern != "" {
			continue
		}
		var names []string
		for _, m := range test.FindAllSubmatch(text, -1) {
			if name := string(m[1]); name != "TestMain" && !h.not.MatchString(name) {
				names = append(names, name)
			}
		}
		if len(names) > 0 {
			run := fmt.Sprintf("-test.run=^(%s)$", strings.Join(names, "|"))
			*parts = append(*parts, part{b, h, h.name + " " + strings.TrimSuffix(f, "_test.go"), []string{run}, len(text)})
		}
	}
	if b.pkg != "integration" || s.pattern != "" {
		*parts = append(*parts, whole)
	}
	return nil
}
