package devcontainer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// String shows a value as JSON shows it, with ~ for nothing.
func (n *node) String() string {
	var parts []string
	switch n.kind {
	case word:
		return fmt.Sprintf("%q", n.text)
	case list:
		for _, item := range n.items {
			parts = append(parts, item.String())
		}
		return "[" + strings.Join(parts, " ") + "]"
	case table:
		for _, m := range n.keys {
			parts = append(parts, m.key+":"+m.value.String())
		}
		return "{" + strings.Join(parts, " ") + "}"
	}
	return "~"
}

// TestYAML checks what the parser takes, and that it names the line of what it refuses.
func TestYAML(t *testing.T) {
	for in, want := range map[string]string{
		"": "~", "# only a comment\n\n": "~", "---\na: 1": `{a:"1"}`, "a:": "{a:~}", "a: ~\nb: null\nc: 'null'\nd: \"\"": `{a:~ b:~ c:"null" d:""}`,
		"a: b # c\nd: 'e # f' # g\nh: i#j":           `{a:"b" d:"e # f" h:"i#j"}`,
		"a:\n  b:\n    c: 1\n  d: 2\ne: 3":           `{a:{b:{c:"1"} d:"2"} e:"3"}`,
		"a:\n- 1\n- 2\nb:\n  - 3":                    `{a:["1" "2"] b:["3"]}`,
		"- a: 1\n  b: 2\n- - x\n  - y\n-\n  c: 3\n-": `[{a:"1" b:"2"} ["x" "y"] {c:"3"} ~]`,
		"- \"8080:80\"\n- ..:/w:cached\n- a\\b":      `["8080:80" "..:/w:cached" "a\\b"]`,
		`a: [1, "b, c", 'd', [e], {f: g, "h": }, ]`:  `{a:["1" "b, c" "d" ["e"] {f:"g" h:~}]}`,
		"a: [] # x\nb: {}":                           "{a:[] b:{}}",
		`"a b": "\t\"\\\u00e9\x41"`:                  `{a b:"\t\"\\éA"}`,
		"a: 'it''s'":                                 `{a:"it's"}`,
		"a: b: c":                                    `line 1: "b: c": another ":" in a value`,
		"a: 1\n\tb: 2":                               "line 2: has a tab", "a: b\tc": "line 1: has a tab", "a:\n  b: 1\n c: 2": "line 3: is indented in another way", "  a: 1\nb: 2": "line 2: is indented in another way",
		"a: 1\n  b: 2":     "line 2: a text of several lines is not supported",
		"a: 1\nb: 2\na: 3": "line 3: a: occurs twice, also in line 1",
		"a: {b: 1, b: 2}":  "line 1: b: occurs twice",
		"a: &x 1":          "an anchor is not supported", "a: *x": "an alias is not supported", "a: !!str 1": "a tag is not supported", "a: |\n  x": "a text of several lines", "- >-\n  x": "a text of several lines",
		"a:\n  <<: *x": "line 2: <<: merging is not supported", "&a b: 1": "an anchor", "? a": "line 1", "%YAML 1.2\n---\na: 1": "line 1: directives", "a: 1\n---\nb: 2": "line 2: several documents", "a: 1\n...": "several documents",
		"a: [1, 2\n  3]": "line 1: has no \"]\" on its line", "a: [1 # x]": "neither \",\" nor \"]\" at \"# x]\"", "a: {b}": "no KEY: VALUE", "a: [b: c]": "neither", "a: [,]": "no value", "a: - b": "\"-\" at the beginning", "---\n---\na: 1": "line 2: several documents", "a: ]": "] at the beginning",
		`a: "b`: "has no \" on its line", "a: 'b": "has no ' on its line", `a: "b" c`: `unexpected "c"`, `a: "b"#c`: `unexpected "#c"`, `a: "\q"`: "an escape that is not supported", `a: "\0"`: "an escape", `a: "\u0000"`: "an escape",
		"just a text": "line 1: is neither NAME: VALUE nor an item of a list", "a: 1\nb": "line 2: is neither", "- a\nb: 1": "line 2: is indented in another way", ": 1": "has no key",
		"a: \x01": "line 1: has a control character", "a: \u2028b": "control character", "\xff": "is not UTF-8", "a: @b": "@ at the beginning",
		strings.Repeat("- ", 100) + "x": "line 1: more than 32 levels", "a: " + strings.Repeat("[", 100): "more than 32 levels", strings.Repeat("x", MaxSize+1): "longer than",
	} {
		n, err := parseYAML([]byte(in))
		got := fmt.Sprint(err)
		if err == nil {
			got = n.String()
		}
		if err == nil && got != want || err != nil && !strings.Contains(got, want) {
			t.Errorf("%.60q: %s\nwant %s", in, got, want)
		}
	}
}

// FuzzYAML checks that any file is parsed or refused, with bounded depth and true lines, and that what was parsed reads the
// same again when it is written in brackets.
func FuzzYAML(f *testing.F) {
	for _, s := range []string{"a:\n  - b: 'c'\n    d: [e, {f: \"g\"}]\n", "- - x\n  -\n-\n  y: 1 # z", "---\n\"k\": \"\\u00e9\"\n", "a: b\n  c", "? x\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		n, err := parseYAML(text)
		if err != nil {
			return
		}
		var walk func(n *node, depth int)
		walk = func(n *node, depth int) {
			if depth > 2*maxDepth+2 || n.line < 1 || n.line > 1+strings.Count(string(text), "\n") {
				t.Fatalf("depth %d, line %d", depth, n.line)
			}
			for _, item := range n.items {
				walk(item, depth+1)
			}
			for _, m := range n.keys {
				walk(m.value, depth+1)
			}
		}
		walk(n, 0)
		again, err := parseYAML([]byte("v: " + flow(n)))
		if err != nil && !strings.Contains(err.Error(), "levels") && !strings.Contains(err.Error(), "longer") || err == nil && again.keys[0].value.String() != n.String() {
			t.Fatalf("%s\nagain: %v %v", n, again, err)
		}
	})
}

// flow writes a value in brackets.
func flow(n *node) string {
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	var parts []string
	switch n.kind {
	case word:
		if strings.ContainsAny(n.text, "\n\r\x00") || strings.IndexFunc(n.text, func(r rune) bool { return r < ' ' || r >= 0x7f }) >= 0 {
			var b strings.Builder
			for _, r := range n.text {
				fmt.Fprintf(&b, `\U%08x`, r)
			}
			return `"` + b.String() + `"`
		}
		return quote(n.text)
	case list:
		for _, item := range n.items {
			parts = append(parts, flow(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case table:
		for _, m := range n.keys {
			key := flow(&node{kind: word, text: m.key})
			parts = append(parts, key+": "+flow(m.value))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return "~"
}

// composed plans a devcontainer.json with a compose file beside it.
func composed(t *testing.T, file, compose string, env ...string) (*Plan, error) {
	t.Helper()
	f, err := parse([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	return f.Plan(Place{Dir: "/home/me/App", File: ".devcontainer/devcontainer.json", Mounted: []string{"/given"},
		Read: func(name string) ([]byte, error) {
			if name != ".devcontainer/compose.yml" {
				return nil, errors.New("no such file")
			}
			return []byte(compose), nil
		},
		Env: func(name string) (string, bool) {
			for _, e := range env {
				if value, ok := strings.CutPrefix(e, name+"="); ok {
					return value, true
				}
			}
			return "", false
		}})
}

// TestCompose checks what a service means for a sandbox.
func TestCompose(t *testing.T) {
	p, err := composed(t, `{"dockerComposeFile": "compose.yml", "service": "app", "workspaceFolder": "/workspaces/${localWorkspaceFolderBasename}", "containerEnv": {"B": "own"}}`, `
version: '3.8'
services:
  app:
    build:
      context: ..
      dockerfile: .devcontainer/Dockerfile
      target: "dev"
      args:
        VARIANT: ${VARIANT:-12}
        GIVEN: "$GIVEN"
    environment:
      A: one $$HOME
      B: two
      NUMBER: 3
      GIVEN:
      MISSING:
    user: vscode
    volumes:
      - ../..:/workspaces:cached
      - data:/var/data
      - /scratch
      - type: bind
        source: ../conf
        target: /conf
        read_only: true
      - /etc:/given
    command: sleep infinity
volumes:
  data:
`, "GIVEN=yes")
	if err != nil {
		t.Fatal(err)
	}
	if b := p.Build; b.File != ".devcontainer/Dockerfile" || b.Context != "." || b.Target != "dev" || !slices.Equal(b.Args, []string{"GIVEN=yes", "VARIANT=12"}) {
		t.Errorf("build %+v", b)
	}
	if want := []Mount{{".", "/workspaces/App", false}, {"conf", "/conf", true}}; !slices.Equal(p.Mounts, want) || !slices.Equal(p.Tmpfs, []string{"/var/data", "/scratch"}) || p.Dir != "/workspaces/App" {
		t.Errorf("mounts %+v, %q, directory %s", p.Mounts, p.Tmpfs, p.Dir)
	}
	notes := strings.Join(p.Notes, "\n")
	for _, part := range []string{"compose.yml: MISSING is not given; demesne run --env MISSING gives it", `of "../..", only the workspace is mounted, at /workspaces/App`, "command: not executed", "/var/data is an empty directory"} {
		if !strings.Contains(notes, part) {
			t.Errorf("no note %q:\n%s", part, notes)
		}
	}
	p.Image(Has{User: "image"}, false)
	if !slices.Equal(p.Env, []string{"A=one $HOME", "B=own", "GIVEN=yes", "NUMBER=3"}) || p.User != "vscode" {
		t.Errorf("%q, user %s", p.Env, p.User)
	}
	p, err = composed(t, `{"dockerComposeFile": ["compose.yml"]}`, "services: {app: {image: 'x:${TAG-1}${NONE}', working_dir: /srv, environment: [A=b, GIVEN]}}", "GIVEN=yes")
	if err != nil || p.Name != "x:1" || p.Dir != "/srv" || len(p.Mounts) > 0 || !strings.Contains(strings.Join(p.Notes, "\n"), "no volume mounts the workspace") {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestComposeRefused checks that everything else is refused by its name and line.
func TestComposeRefused(t *testing.T) {
	app := func(lines ...string) string {
		return "services:\n  app:\n    image: x\n    " + strings.Join(lines, "\n    ") + "\n"
	}
	for _, c := range []struct{ file, compose, says string }{
		{``, app("ports:", "  - 80:80"), `dockerComposeFile "compose.yml": line 4: services: app: ports: not supported`},
		{``, app("privileged: true"), "line 4: services: app: privileged: not supported"},
		{``, app("x-own: 1"), "x-own: not supported"},
		{``, app("build: {context: ., secrets: [a]}"), "line 4: build: secrets: not supported"},
		{``, app("volumes:", "- {type: bind, source: ., target: /w, bind: {}}"), "line 5: volumes: bind: not supported"},
		{``, "services:\n  app:\n    image: x\n  db:\n    image: y\n", "line 4: several services: app, db: a sandbox is one environment"},
		{``, "services:\n  app: {image: x}\nnetworks: {}\n", "line 3: the file: networks: not supported"},
		{``, "services: {app: {image: x}}\nvolumes:\n  a:\n    driver: local\n", "line 3: volumes: a: options are not supported"},
		{``, "version: 2\n", "has no services"}, {``, "services:\n", "has no services"}, {``, "[a]", "line 1: is neither NAME: VALUE"}, {``, "- a", "line 1: the file: a mapping is expected, not a list"}, {``, "", "the file: a mapping is expected, not nothing"},
		{``, "services: {app: }\n", "services: app: a mapping is expected, not nothing"},
		{``, "services: {app: {command: x}}\n", "neither an image nor a build"},
		{``, app("user: [a]"), "line 4: services: app: user: a text is expected, not a list"},
		{``, app("environment: x"), "a mapping or a list is expected"}, {``, app("environment: [=x]"), "not a name"}, {``, app("environment: [A=1, A=2]"), "a second value"}, {``, app("environment: {A: [b]}"), "line 4: A: a text is expected"},
		{``, app("working_dir: here"), "is not an absolute path"},
		{``, app("command: {a: b}"), "a text or a list is expected"},
		{``, app("volumes: [/etc:/etc]"), `line 4: volumes: "/etc" is outside of the workspace`},
		{``, app("volumes: ['~/.ssh:/ssh']"), "outside of the workspace"}, {``, app("volumes: [../../../x:/x]"), "outside of the workspace"},
		{``, app("volumes: [/var/run/docker.sock:/var/run/docker.sock]"), "outside of the workspace"},
		{``, app("volumes: ['~/..:/x']"), "outside of the workspace"},
		{``, app("volumes: [.:/a:rw:x]"), "not SOURCE:TARGET:OPTIONS"}, {``, app("volumes: [.:/a:exec]"), `unknown option "exec"`}, {``, app("volumes: [.:a]"), "no absolute path"}, {``, app("volumes: x"), "a list is expected"},
		{``, app("volumes:", "- {type: npipe, source: ., target: /w}"), `type "npipe" is not supported`},
		{``, "services: {app: {build: 'https://example.test/x.git'}}", "only a directory of the workspace is supported"},
		{``, "services: {app: {build: ../..}}", "outside of the workspace"}, {``, "services: {app: {build: {dockerfile: ../../../etc/x}}}", "outside of the workspace"},
		{``, app("user: ${A:?needed}"), `a "$" that begins no variable`}, {``, app("user: ${A"), `a "$" that begins no variable`},
		{`, "service": "web"`, app(), `has no service "web", only "app"`},
		{`, "image": "y"`, app(), "both an image or a build, and a dockerComposeFile"},
		{`, "workspaceMount": "source=.,target=/w"`, app(), "workspaceMount: the compose file has the mounts"},
	} {
		_, err := composed(t, `{"dockerComposeFile": "compose.yml"`+c.file+`}`, c.compose)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v\nwant %s", c.compose, err, c.says)
		}
	}
	for file, says := range map[string]string{
		`{"dockerComposeFile": ["compose.yml", "more.yml"]}`: "2 files: merging is not supported",
		`{"dockerComposeFile": "../../compose.yml"}`:         "outside of the workspace", `{"dockerComposeFile": "none.yml"}`: "no such file",
	} {
		if _, err := composed(t, file, app()); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v\nwant %s", file, err, says)
		}
	}
}
