package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// names are tests such as TestRun, packages such as ./build, and files of package integration without _test.go. A * stands for
// any text.
type names []string

func list(words string) names { return strings.Fields(words) }

func (n names) has(name string) bool {
	return slices.ContainsFunc(n, func(pattern string) bool { ok, _ := path.Match(pattern, name); return ok })
}

// flag returns the value of -test.run or -test.skip for tests without a *.
func (n names) flag() string { return "^(" + strings.Join(n, "|") + ")$" }

// half is the tests that one user runs.
type half struct {
	name  string
	login string // an ordinary user's name, if not the current user
	not   names  // files and tests of package integration, and packages, of the other half only
	skip  names  // tests that its packages leave out
	only  names  // the only tests of its packages, if not nil
}

// Slow tests and packages that behave the same for every user belong to one half. The ordinary user's half has those that
// need no rights of root: builds, pulls, agents, kernels, MCP, the documents, the servers' protocols, and the rules that the
// proxy applies. Both halves run what the kernel could decide differently for root: ids, owners of files, mounts, control
// groups, networks, signals, budgets of the machine's resources, secrets, escapes. Root's half has what an ordinary user
// cannot prepare on every machine. The packages of notUser are pure, or run their tests as an ordinary user too when root
// starts them.
var (
	notRoot = list(`
		agent_acp agent_branch agent_budget agent_hosted agent_image agent_jobs agent_mcp agent_programs agent_renew agent_terminal
		agent_text agent_tools agent_transcript agent_tree agent_workspace
		build build_input build_mounts build_output build_progress build_remote build_shapes build_warm
		code_files codes devcontainer devcontainer_compose devcontainer_features docs doors
		egress_age egress_goproxy egress_learn egress_load egress_peers egress_tools egress_trust examples examples_build halfway
		image_archive image_config image_gc image_maps image_metadata image_pull image_refused image_registry image_root
		image_store installers jupyter
		mcp_ask mcp_client mcp_code mcp_commands mcp_egress mcp_frontends mcp_image mcp_jobs mcp_model mcp_modern
		mcp_operator mcp_script mcp_secret mcp_session mcp_transport mcp_turns mcp_web mcp_wire
		outputs path push recipes repl schema
		serve_agents serve_bounds serve_images serve_namespaces serve_operate serve_rest serve_secret
		sessions_key sessions_turns skills spare_shapes streams

		TestDocker TestDockerAgent TestDockerBuild TestDockerCompose
		TestBuildCases TestBuildCollected TestBuildHeld TestBuildLost TestEgressAsk TestEgressAskUnanswered TestEgressLive
		TestImageNames TestImagePull TestImagePullPolicy TestParallel TestProxyKilledEarly TestPythonPackage
		TestServeGuard TestServeKilledAny TestServePauseSoon

		./build ./build/devcontainer ./build/executor ./build/worker ./client ./images/pull ./kernels/code ./mcp/filter ./server/inprocess
		./server/serve`)
	notUser = list(`
		install install_packages musl release slurm

		TestBuildCasesPeer TestPage* TestServeACME TestServeE2B TestServeKilled TestServePython TestServeRetention
		TestServeRuns TestServeToolTexts

		./build/containerfile ./images/push ./integration/module ./integration/release ./kernels
		./kernels/languages ./mcp ./mcp/hosttools ./netns ./proxy ./proxy/policy ./proxy/redact ./rootfs/unpack
		./runner/ipc ./server ./server/e2b ./server/hostcmd ./server/operate ./server/page ./server/rest ./server/runs
		./session/audit`)
	// once has slow tests of packages that both halves have. Root's half runs them, with the id map of the ordinary user's too
	// where that matters.
	once = list(`TestAheadBusy TestBomb TestDeep TestDenseButLegal TestVeryDeep`)
	// notRace has tests that one goroutine runs, or whose work other processes do, which run without the race detector. Root's
	// half runs them where it leaves the rest of their package to that detector.
	notRace = list(`TestCodeErrors TestForkKilled TestForkLarge TestFramesLong TestFramesLongID TestFramesManyErrors TestHTTPBody
		TestInputNames TestKeptKilled TestLines TestMakeBounded TestOutputBounded TestWatchdogDiskFull`)
)

// halves returns the current user, and the ordinary one if there is one. Tests that the caller chose run in both.
func (s *suite) halves() []half {
	switch {
	case s.login == "":
		return []half{{name: "user"}}
	case s.pattern != "":
		return []half{{name: "root"}, {name: "user", login: s.login}}
	}
	return []half{{name: "root", not: notRoot}, {name: "user", login: s.login, not: notUser, skip: once}}
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
			if h.not.has("./" + b.pkg) {
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
		if err := s.divide(&parts, b, half{name: "race", skip: slices.Concat(list("TestKill TestManual TestScripts"), notRace)}); err != nil {
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
	whole := part{binary: b, half: h, name: h.name + " " + b.pkg, args: []string{"-test.run=" + s.pattern, "-test.skip=" + h.skip.flag()}}
	if h.only != nil {
		whole.args = []string{"-test.run=" + h.only.flag()}
	}
	empty := h.only != nil
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		whole.size += len(text)
		for _, m := range test.FindAllSubmatch(text, -1) {
			empty = empty && !h.only.has(string(m[1]))
		}
		if b.pkg != "integration" || s.pattern != "" {
			continue
		}
		var run names
		file := strings.TrimSuffix(filepath.Base(f), "_test.go")
		for _, m := range test.FindAllSubmatch(text, -1) {
			name := string(m[1])
			left := func(to names) bool { return to.has(file) || to.has(name) }
			if left(notRoot) && left(notUser) {
				return fmt.Errorf("%s/%s is in no half", file, name)
			} else if name != "TestMain" && !left(h.not) {
				run = append(run, name)
			}
		}
		if len(run) > 0 {
			*parts = append(*parts, part{b, h, h.name + " integration/" + file, []string{"-test.run=" + run.flag()}, len(text)})
		}
	}
	if (b.pkg != "integration" || s.pattern != "") && !empty {
		*parts = append(*parts, whole)
	}
	return nil
}
