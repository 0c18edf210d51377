package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestRunCommand(t *testing.T) {
	b := newBox(t)
	if got := b.sh("echo hello"); got != "hello\n" {
		t.Errorf("stdout = %q", got)
	}
	if r := b.demesne("run", "-c", "echo $((6*7)); echo err >&2; exit 3"); r != (result{3, "42\n", "err\n"}) {
		t.Errorf("run -c: %+v", r)
	}
	if r := b.demesne("run", "--", "true"); r != (result{}) {
		t.Errorf("run true says something: %+v", r)
	}
}

// TestRunArgvIsNeverText checks that argv reaches the command unchanged: neither a shell nor demesne interprets
// it.
func TestRunArgvIsNeverText(t *testing.T) {
	b := newBox(t)
	argv := []string{"", " ", "a b", "$HOME", "`id`", "; exit 9", "'", `"`, `\`, "*", "-c", "--json", "--", "\n", "tab\t", "é", "\xff\xfe", strings.Repeat("x", 100<<10)}
	r := b.demesne(append([]string{"run", "--", "printf", `%s\0`}, argv...)...)
	if r.code != 0 || r.stdout != strings.Join(argv, "\x00")+"\x00" {
		t.Errorf("exit %d, argv came through as %q, stderr %s", r.code, r.stdout[:min(len(r.stdout), 200)], r.stderr)
	}
}

// TestRunShellText checks that the text of -c is one argument, so that a comment or heredoc at its end works.
func TestRunShellText(t *testing.T) {
	b := newBox(t)
	for text, want := range map[string]string{
		"echo one # two":              "one\n",
		"cat <<EOF\nin\nEOF":          "in\n",
		"echo a\necho b":              "a\nb\n",
		`printf '%s' "don't" 'a"b'`:   `don't` + `a"b`,
		"f() { echo fn; }; f; exit 0": "fn\n",
		"exec 3>&1; echo three >&3":   "three\n",
	} {
		if r := b.demesne("run", "-c", text); r.code != 0 || r.stdout != want {
			t.Errorf("-c %q: %+v, want stdout %q", text, r, want)
		}
	}
}

func TestRunEnvironment(t *testing.T) {
	b := newBox(t)
	cmd := b.command("demesne", "run", "--env", "A=1 2", "--env", "PASSED", "--env", "EMPTY=", "--", "env")
	cmd.Env = append(cmd.Env, "PASSED=yes", "UNASKED=no")
	r := b.finish(cmd)
	env := map[string]string{}
	for _, l := range strings.Split(strings.TrimSpace(r.stdout), "\n") {
		k, v, _ := strings.Cut(l, "=")
		env[k] = v
	}
	for k, want := range map[string]string{"A": "1 2", "PASSED": "yes", "EMPTY": "", "DO_NOT_TRACK": "1", "NEXT_TELEMETRY_DISABLED": "1",
		"PIP_NO_INPUT": "1", "npm_config_fund": "false", "RES_OPTIONS": "single-request-reopen timeout:2 attempts:3"} {
		if got, ok := env[k]; !ok || got != want {
			t.Errorf("%s = %q (%v), want %q", k, got, ok, want)
		}
	}
	if _, ok := env["UNASKED"]; ok || strings.Contains(r.stdout, canary) {
		t.Errorf("the caller's environment passed:\n%s", r.stdout)
	}
	for _, k := range []string{"PATH", "HOME"} {
		if env[k] == "" {
			t.Errorf("no %s:\n%s", k, r.stdout)
		}
	}
}

func TestRunWorkdirAndUser(t *testing.T) {
	b := newBox(t)
	if got := b.sh("pwd"); got != "/workspace\n" {
		t.Errorf("pwd = %q", got)
	}
	if r := b.demesne("run", "--workdir", "/tmp", "--", "pwd"); r.stdout != "/tmp\n" {
		t.Errorf("--workdir: %+v", r)
	}
	if got := b.sh("id -u; id -g"); got != "0\n0\n" {
		t.Errorf("id = %q", got)
	}
	p, r := b.report(nil, "true")
	if len(p.Receipt.UIDMap) == 1 && p.Receipt.UIDMap[0].Size == 1 {
		b.refused(t, "1000:1001", "run", "--user", "1000:1001", "--", "true")
		return
	}
	p, r = b.report([]string{"--user", "1000:1001"}, "sh", "-c", "id -u; id -g; touch /out/f /workspace/g; test ! -w /etc/passwd")
	if p.ExitCode != 0 || !strings.Contains(r.stdout+r.stderr, "1000") {
		t.Errorf("--user 1000:1001: %+v %s", r, p.Detail)
	}
}

// TestRunScratch checks that /, /tmp and /home are writable, and discarded after the run.
func TestRunScratch(t *testing.T) {
	b := newBox(t)
	const try = "set -e; for d in / /tmp /home /workspace; do test ! -e $d/mark; echo x > $d/mark; cat $d/mark; done"
	for range 2 {
		if got := b.sh(try); got != "x\nx\nx\nx\n" {
			t.Errorf("scratch: %q", got)
		}
	}
	if _, err := os.Stat("/tmp/mark"); err == nil {
		t.Error("the sandbox's /tmp is the host's")
	}
}

// TestRunHostTools checks that the host's tools run on the host image.
func TestRunHostTools(t *testing.T) {
	b := newBox(t)
	for tool, script := range map[string]string{
		"/usr/bin/python3": `test "$(/usr/bin/python3 -c 'print(6*7)')" = 42`,
		"/usr/bin/perl":    `test "$(perl -e 'print 6*7')" = 42`,
		"/usr/bin/gcc":     `echo 'int main(){return 42;}' > a.c && gcc a.c && { ./a.out; test $? = 42; }`,
		"/usr/bin/git":     `git init -q r && cd r && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m m && git log --oneline | grep -q m`,
	} {
		if _, err := os.Stat(tool); err == nil {
			b.sh(script)
		}
	}
}

// TestRunName checks that --name is unique among live sandboxes.
func TestRunName(t *testing.T) {
	b := newBox(t)
	first := b.command("demesne", "run", "-i", "--name", "solo", "--", "sh", "-c", "echo up; cat")
	in, _ := first.StdinPipe()
	out, _ := first.StdoutPipe()
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	up := make([]byte, 3)
	if _, err := out.Read(up); err != nil {
		t.Fatal(err)
	}
	if r := b.demesne("run", "--name", "solo", "--", "true"); r.code != 125 || !strings.Contains(r.stderr, "solo") {
		t.Errorf("the same name twice: %+v", r)
	}
	in.Close()
	if err := first.Wait(); err != nil {
		t.Errorf("first: %v", err)
	}
	if r := b.demesne("run", "--name", "solo", "--", "true"); r.code != 0 {
		t.Errorf("the name again, later: %+v", r)
	}
}

func TestRunTrace(t *testing.T) {
	b := newBox(t)
	r := b.demesne("run", "--trace", "--", "echo", "x")
	for _, stage := range []string{"clone", "maps", "mounts", "netns", "guest:landlock", "guest:seccomp", "exec", "first byte", "total"} {
		if !regexp.MustCompile(`(?m)^` + stage + ` +[0-9.]+ ms$`).MatchString(r.stderr) {
			t.Errorf("--trace tells no %q:\n%s", stage, r.stderr)
		}
	}
	if r.code != 0 || r.stdout != "x\n" {
		t.Errorf("--trace: %+v", r)
	}
}

// TestPrograms checks that there are six programs, one for each set of privileges, that make build keeps them small, and
// that a link starts the MCP server.
func TestPrograms(t *testing.T) {
	want := []string{"demesne", "demesne-frontend", "demesne-images", "demesne-init", "demesne-proxy", "demesne-runner"}
	if got := names("../cmd"); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	var size int64
	for _, name := range want {
		info, err := os.Stat(filepath.Join(bin, name))
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if made := os.Getenv("DEMESNE_BIN") != ""; made && size > 80_000_000 { // others keep their symbols
		t.Errorf("the programs have %d bytes", size)
	}
	b := newBox(t)
	if r := b.finish(b.command("demesne-mcp", "--version")); !strings.HasPrefix(r.stdout, "demesne-mcp ") {
		t.Errorf("the link: %+v", r)
	}
	if r := b.finish(b.command("demesne-frontend", "none")); r.code != 2 || r.stdout != "" {
		t.Errorf("an unknown frontend: %+v", r)
	}
}

// TestRunFindsItsPrograms checks that demesne finds its other programs beside its own executable, also through a
// link, or in $DEMESNE_LIBEXEC.
func TestRunFindsItsPrograms(t *testing.T) {
	b := newBox(t)
	link := filepath.Join(b.mkdir("bin"), "demesne")
	if err := os.Symlink(filepath.Join(bin, "demesne"), link); err != nil {
		t.Fatal(err)
	}
	if r := b.finish(b.command(link, "run", "--", "echo", "linked")); r.stdout != "linked\n" {
		t.Errorf("through a link: %+v", r)
	}
	cmd := b.command("demesne", "run", "--", "true")
	cmd.Env = append(cmd.Env, "DEMESNE_LIBEXEC="+b.mkdir("empty"))
	if r := b.finish(cmd); r.code != 125 || !strings.Contains(r.stderr, "demesne-runner") {
		t.Errorf("an empty $DEMESNE_LIBEXEC: %+v", r)
	}
}
