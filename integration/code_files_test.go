package integration

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"demesne/integration/fixture"
)

// showsArgs is a program of Python that prints its arguments and its directory.
const showsArgs = "import sys, os\nprint(sys.argv, os.getcwd())\n"

// TestScript runs files of this machine by the interpreters of the sandbox.
func TestScript(t *testing.T) {
	b := newBox(t)
	program(t, "python3")
	program(t, "node")
	b.file("a.py", showsArgs, 0o644)
	b.file("x.py", showsArgs, 0o755) // executable, without a #! line: its name counts
	b.file("bash.sh", "#!/bin/bash\na=(1 2); echo bash ${#a[@]} $1\n", 0o644)
	b.file("env.py", "#!/usr/bin/env python3\n"+showsArgs, 0o755)
	b.file("plain.sh", "echo sh $1; cat; echo x > /in/plain.sh || echo read-only\n", 0o644)
	b.file("old.sh", "#!/no/such/shell -x\n", 0o755)
	b.file("c.js", "console.log(process.argv.slice(1).join(), process.cwd())\n", 0o644)
	b.file("m.mjs", "import { sep } from 'path'; await 1; console.log(sep)\n", 0o644)
	b.file("none.rb", "puts 1\n", 0o644)
	b.file("tool", showsArgs, 0o644)
	b.file("dir.py/main.py", "import helper\n", 0o644)
	b.file("dir.py/helper.py", "print('helper')\n", 0o644)
	b.file("dir.py/a.py", "print('other')\n", 0o644)
	os.Symlink("a.py", b.dir+"/link.py")
	os.Symlink("nowhere", b.dir+"/dangling.py")
	for _, c := range []struct {
		line string
		code int
		want string // stdout, or else a part of stderr
	}{
		{"a.py 1 --help -x", 0, "['/in/a.py', '1', '--help', '-x'] /workspace\n"},
		{"-- ./a.py", 0, "['/in/a.py'] /workspace\n"},
		{b.dir + "/a.py", 0, "['/in/a.py'] /workspace\n"},
		{"link.py", 0, "['/in/link.py'] /workspace\n"},
		{"x.py", 0, "['/in/x.py'] /workspace\n"},
		{"env.py a", 0, "['/in/env.py', 'a'] /workspace\n"},
		{"bash.sh b", 0, "bash 2 b\n"},
		{"c.js 1", 0, "/in/c.js,1 /workspace\n"},
		{"m.mjs", 0, "/\n"},
		{"--workdir /tmp a.py", 0, "['/in/a.py'] /tmp\n"},
		{"--language python tool 1", 0, "['/in/tool', '1'] /workspace\n"},
		{"--language python bash.sh", 1, "SyntaxError"},
		// A directory that the sandbox shows has the script, and the files beside it.
		{"--workspace dir.py dir.py/main.py", 0, "helper\n"},
		{"--workspace dir.py:cow dir.py/main.py", 0, "helper\n"},
		{"--mount dir.py:/opt/x dir.py/main.py", 0, "helper\n"},
		{"--in dir.py dir.py/main.py", 0, "helper\n"},
		{"--in dir.py/a.py a.py", 0, "['/in/run-a.py'] /workspace\n"},
		// No interpreter, and no script.
		{"--env PATH=/opt/none none.rb", 127, "demesne: script \"none.rb\": the sandbox has no interpreter of ruby; looked for ruby\nhint: "},
		{"old.sh", 127, "demesne: script \"old.sh\": the sandbox has no /no/such/shell, which the file's first line names\nhint: demesne run --language shell old.sh"},
		{"missing.py", 127, "the sandbox has no such program, and this machine no such file"},
		{"dangling.py", 127, "demesne: execute \"dangling.py\": not found"},
		{"dir.py", 127, "demesne: execute \"dir.py\": not found"},
		{"--language python dir.py", 125, "script \"dir.py\": is not a regular file"},
		{"--language python missing", 125, "script \"missing\": no such file or directory"},
		{"--language python -c true", 125, "--language: needs a file or - as the command"},
		{"--entrypoint echo a.py", 0, "a.py\n"},
	} {
		r := b.demesne(append([]string{"run"}, strings.Fields(c.line)...)...)
		if got := r.stdout; r.code != c.code || c.code == 0 && got != c.want || !strings.Contains(r.stdout+r.stderr, c.want) {
			t.Errorf("run %s: %+v, want %d %q", c.line, r, c.code, c.want)
		}
	}
	cmd := b.command("demesne", "run", "-i", "plain.sh", "arg")
	cmd.Stdin = strings.NewReader("input\n")
	if r := b.finish(cmd); r.stdout != "sh arg\ninput\nread-only\n" {
		t.Errorf("stdin of a script: %+v", r)
	}
	cmd = b.command("demesne", "run", "--here", "main.py")
	cmd.Dir = b.dir + "/dir.py"
	if r := b.finish(cmd); r.stdout != "helper\n" {
		t.Errorf("--here: %+v", r)
	}
	b.extra = append(b.extra, "TMPDIR="+b.mkdir("tmp"))
	cmd = b.command("demesne", "run", "--language", "python", "-", "arg")
	cmd.Stdin = strings.NewReader(showsArgs)
	if r := b.finish(cmd); r.stdout != "['/in/stdin.py', 'arg'] /workspace\n" {
		t.Errorf("a program on stdin: %+v", r)
	}
	if left := names(b.dir + "/tmp"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if text, _ := os.ReadFile(b.dir + "/plain.sh"); !strings.HasPrefix(string(text), "echo sh") {
		t.Errorf("the script was changed: %q", text)
	}
}

// TestScriptShadow checks that a script of this machine hides no program of the sandbox.
func TestScriptShadow(t *testing.T) {
	b := newBox(t)
	b.file("tool.sh", "echo of this machine\n", 0o755)
	b.file("bin/tool.sh", "#!/bin/sh\necho of the sandbox\n", 0o755)
	if r := b.demesne("run", "--mount", "bin:/opt/bin", "--env", "PATH=/opt/bin:/usr/bin:/bin", "tool.sh"); r.stdout != "of the sandbox\n" {
		t.Errorf("a program of the sandbox: %+v", r)
	}
	if r := b.demesne("run", "tool.sh"); r.stdout != "of this machine\n" {
		t.Errorf("the script: %+v", r)
	}
}

// TestScriptPersistent checks scripts in sandboxes that exist: they can have no further inputs.
func TestScriptPersistent(t *testing.T) {
	b := newBox(t)
	program(t, "python3")
	b.file("a.py", showsArgs, 0o644)
	b.file("env.py", "#!/usr/bin/env python3\nprint('env')\n", 0o755)
	b.file("work/main.py", "import helper\n", 0o644)
	b.file("work/helper.py", "print('helper')\n", 0o644)
	if r := b.demesne("create", "--name", "sb", "--workspace", "work"); r.code != 0 {
		t.Fatalf("create: %+v", r)
	}
	for _, c := range [][2]string{
		{"exec sb a.py 1", `^\['/tmp/demesne-\w{12}/a.py', '1'\] /workspace\n$`},
		{"exec sb env.py", `^env\n$`},
		{"exec sb work/main.py", `^helper\n$`},
		{"run --key k --workspace work work/main.py", `^helper\n$`},
		{"run --key k work/main.py", `^helper\n$`},
		{"run --key k --language python a.py", `^\['/tmp/demesne-\w{12}/a.py'\] /workspace\n$`},
		{"run --key new a.py", `^\['/tmp/demesne-\w{12}/a.py'\] /workspace\n$`},
	} {
		if r := b.demesne(strings.Fields(c[0])...); r.code != 0 || !regexp.MustCompile(c[1]).MatchString(r.stdout) {
			t.Errorf("%s: %+v", c[0], r)
		}
	}
	if r := b.demesne("exec", "nosuch", "a.py"); r.code != 125 || !strings.Contains(r.stderr, "no such sandbox") {
		t.Errorf("no sandbox: %+v", r)
	}
	ids := strings.Fields(b.demesne("ls", "-q").stdout)
	if r := b.demesne(append([]string{"rm"}, ids...)...); r.code != 0 {
		t.Errorf("rm: %+v", r)
	}
}

// TestScriptImage checks scripts on images: with an entrypoint, and without a shell.
func TestScriptImage(t *testing.T) {
	g := newGallery(t)
	fake := fixture.Mode("bin/python3", "#!/bin/sh\necho fake \"$@\"\n", 0o755)
	g.push("plain:1", v1.Config{Env: []string{"PATH=/bin"}}, g.busybox(), []fixture.Entry{fake})
	g.push("entry:1", v1.Config{Env: []string{"PATH=/bin"}, Entrypoint: []string{"/bin/echo", "entry"}}, g.busybox(), []fixture.Entry{fake})
	g.file("a.py", "", 0o644)
	g.file("w/a.py", "", 0o644)
	g.file("a.rb", "", 0o644)
	for line, want := range map[string]string{
		"run --image " + g.reg.Ref("plain:1") + " a.py 1":                         "fake /in/a.py 1\n",
		"run --image " + g.reg.Ref("entry:1") + " a.py 1":                         "fake /in/a.py 1\n",
		"run --image " + g.reg.Ref("entry:1") + " --workspace w w/a.py":           "entry w/a.py\n",
		"run --image " + g.reg.Ref("entry:1") + " nosuch.py":                      "entry nosuch.py\n",
		"run --image " + g.reg.Ref("entry:1") + " --language python a.rb":         "fake /in/a.rb\n",
		"run --image " + g.reg.Ref("plain:1") + " a.rb":                           "looked for ruby\nhint: demesne run --image NAME",
		"code validate --image " + g.reg.Ref("plain:1") + " --language ruby a.rb": "the sandbox has no ruby, which checks ruby\n",
	} {
		if r := g.do(strings.Fields(line)...); !strings.Contains(r.stdout+r.stderr, want) {
			t.Errorf("%s: %+v, want %q", line, r, want)
		}
	}
}

// TestScriptNoNamespaces checks a script where there is no /in.
func TestScriptNoNamespaces(t *testing.T) {
	b := newBox(t)
	demesne := b.withoutNamespaces(t)
	b.file("a.sh", "echo here $1\n", 0o644)
	b.file("tool", "echo tool\n", 0o644)
	if r := b.finish(demesne("run", "a.sh", "x")); r.stdout != "here x\n" {
		t.Errorf("%+v", r)
	}
	if r := b.finish(demesne("run", "--language", "sh", "tool")); r.stdout != "tool\n" {
		t.Errorf("--language: %+v", r)
	}
}

// TestValidate checks the syntax of files in real sandboxes, where they are not executed.
func TestValidate(t *testing.T) {
	b := newBox(t)
	program(t, "python3")
	program(t, "node")
	canaryFile := b.dir + "/ran"
	b.file("good.py", "open('"+canaryFile+"', 'w'); import nosuchmodule\n", 0o644)
	b.file("good.mjs", "import 'nosuch'; await 1\n", 0o644)
	b.file("good.sh", "touch "+canaryFile+"\n", 0o644)
	b.file("bad.py", "def f(:\n", 0o644)
	b.file("bad.js", "let a = ;\n", 0o644)
	b.file("endless.py", strings.Repeat("[", 300)+"\n", 0o644)
	if r := b.demesne("code", "validate", "good.py", "good.mjs", "good.sh"); r != (result{}) {
		t.Errorf("correct code: %+v", r)
	}
	r := b.demesne("code", "validate", "bad.py", "bad.js", "good.py", "endless.py")
	if r.code != 1 || !strings.HasPrefix(r.stdout, "bad.py:1:7: ") || !strings.Contains(r.stdout, "\nbad.js:1:9: Unexpected token ';'\nendless.py:1:") || r.stderr != "" {
		t.Errorf("wrong code: %+v", r)
	}
	if _, err := os.Stat(canaryFile); err == nil {
		t.Error("code was executed")
	}
	if left := names(b.out); len(left) > 0 {
		t.Errorf("left in the output root: %q", left)
	}
}

// TestDependency installs a wheel of this machine before a command. A failure is reported, and the command runs.
func TestDependency(t *testing.T) {
	b := newBox(t)
	pip := exec.Command("env", "PATH=/usr/local/bin:/usr/bin:/bin", "python3", "-m", "pip", "--version") // as in a sandbox
	need(t, pip.Run() == nil, "a first python3 with pip")
	b.file("wheels/greet-1.0-py3-none-any.whl", string(wheel(t)), 0o644)
	b.file("a.py", "import greet; print(greet.word)\n", 0o644)
	offline := []string{"--egress", "none", "--in", "wheels", "--env", "PIP_NO_INDEX=1", "--env", "PIP_FIND_LINKS=/in/wheels"}
	run := func(args ...string) result { return b.demesne(append(append([]string{"run"}, offline...), args...)...) }
	if r := run("--dependency", "greet==1.0", "a.py"); r.code != 0 || r.stdout != "hello from a wheel\n" {
		t.Errorf("a script with a dependency: %+v", r)
	}
	if r := run("--dependency", "greet", "--", "/usr/bin/python3", "-c", "import greet; print(greet.word)"); r.stdout != "hello from a wheel\n" {
		t.Errorf("a command with a dependency: %+v", r)
	}
	r := run("--dependency", "nosuch-dm", "--json", "--", "/usr/bin/python3", "-c", "print('went on')")
	if p := b.parse(r); r.code != 0 || p.Stdout != "went on\n" || !strings.Contains(r.stderr, "demesne: run: install nosuch-dm: exit code 1 of the installer\nhint: --egress package-managers") {
		t.Errorf("a missing dependency: %+v", r)
	}
	if r := run("--dependency", "-r/etc/passwd", "a.py"); r.code != 125 || !strings.Contains(r.stderr, "not a name of a package of python") {
		t.Errorf("an option as a dependency: %+v", r)
	}
	if r := run("--dependency", "x", "--", "make"); r.code != 125 || !strings.Contains(r.stderr, "the language is not known") {
		t.Errorf("no language: %+v", r)
	}
	list := b.file("list.json", `[{"argv": ["/usr/bin/python3", "-c", "import greet"]}, {"shell": "exit 5"}, {"shell": "echo never"}]`, 0o644)
	if r := run("--language", "python", "--dependency", "greet", "--commands", list); r.code != 5 || strings.Contains(r.stdout, "never") || !strings.HasSuffix(r.stderr, "demesne: run: commands[1]: exit code 5\n") {
		t.Errorf("a list with a dependency: %+v", r)
	}
}
