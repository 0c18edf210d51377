package integration

import (
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReplPipe checks demesne repl without a terminal.
func TestReplPipe(t *testing.T) {
	b := newBox(t)
	for _, c := range []struct {
		stdin, stdout, stderr string
		code                  int
	}{
		{"x = 20\nprint('a')\nx + 1\n", "a\n21\n", "", 0},
		{"1 / 0", "", "ZeroDivisionError: division by zero", 1},
		{"import sys\nprint(1)\nsys.exit(7)", "1\n", "", 7},
		{"import os\nos._exit(9)", "", "", 9},
		{"", "", "", 0},
	} {
		cmd := b.command("demesne", "repl", "--kernel", "demesne")
		cmd.Stdin = strings.NewReader(c.stdin)
		r := b.finish(cmd)
		if r.code != c.code || r.stdout != c.stdout || !strings.Contains(r.stderr, c.stderr) || c.stderr == "" && r.stderr != "" {
			t.Errorf("%q: %+v", c.stdin, r)
		}
	}
	if r := b.demesne("repl", "cobol"); r.code != 125 || !strings.Contains(r.stderr, `language "cobol": unknown`) {
		t.Errorf("cobol: %+v", r)
	}
}

// TestReplTerminal types into demesne repl on a terminal.
func TestReplTerminal(t *testing.T) {
	b := newBox(t)
	b.extra = append(b.extra, "DEMESNE_OUTPUT_ROOT="+b.dir+"/figures", "NO_COLOR=1")
	term := b.terminal("repl", "--kernel", "demesne")
	seen := 0
	after := func(text string) string { // waits for text, then for a prompt
		t.Helper()
		var rest string
		defer func() {
			if t.Failed() {
				t.Logf("%q", term.screen())
			}
		}()
		eventually(t, text, func() bool {
			all := term.screen()[seen:]
			at := strings.Index(all, text)
			if at < 0 || !strings.Contains(all[at+len(text):], ">>> ") {
				return false
			}
			rest = all
			return true
		})
		seen += len(rest)
		return rest
	}
	eventually(t, "the probe", func() bool { return strings.Contains(term.screen(), "\x1b[c") })
	term.typ("\x1b[?62;22c") // a terminal without images
	after("")
	term.typ("x = 6\r")
	after("x = 6")
	term.typ("x * 7\r")
	after("42")
	term.typ("def f():\r")
	term.expect("... ")
	term.typ("return 'fg'\r\r")
	after("return")
	term.typ("f().upper()\r")
	after("'FG'")
	term.typ("import os\r")
	after("import os")
	term.typ("os.getcw\t\t")
	after("getcwdb")
	term.typ("() + '!'\r")
	after("/workspace!")
	for range 10 { // Ctrl-C may come before the kernel has the code
		term.typ("while True: pass\r")
		eventually(t, "the loop", func() bool { return strings.Contains(term.screen()[seen:], "pass\r\n") })
		term.typ("\x03")
		after("KeyboardInterrupt")
	}
	term.typ("x = 7\r\x03") // Ctrl-C right after Enter
	after("KeyboardInterrupt")
	term.typ("x * 7\r")
	after("42")
	term.typ("forgotten\x03")
	after("^C")
	term.typ("print('\\x1b]0;evil\\x07' + '\\x1b[2J' + 'shown')\r")
	if said := after("shown\r\n"); strings.Contains(said, "\x1b]0") || strings.Contains(said, "\x1b[2J") {
		t.Errorf("control sequences reach the terminal: %q", said)
	}
	term.typ("\x1b[200~for i in range(2):\n    print('p', i)\n\n    print('q')\n\x1b[201~\r")
	after("p 1\r\nq")
	term.typ("import base64\r")
	after("base64")
	term.typ("display({'image/png': 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=='}, raw=True)\r")
	path := strings.Fields(strings.SplitAfter(after("figure: "), "figure: ")[1])[0]
	if f, err := os.Open(path); err != nil || !strings.HasPrefix(path, b.dir+"/figures/") {
		t.Errorf("figure %q: %v", path, err)
	} else if img, err := png.Decode(f); err != nil || img.Bounds().Dx() != 1 {
		t.Errorf("figure: %v", err)
	}
	term.typ("\x04")
	if code := term.wait(); code != 0 {
		t.Errorf("exit %d", code)
	}
	files, _ := filepath.Glob(b.home + "/.demesne/repl/python.history")
	if len(files) != 1 {
		t.Fatal("no history")
	}
	info, _ := os.Stat(files[0])
	text, _ := os.ReadFile(files[0])
	if info.Mode().Perm() != 0o600 || !strings.HasPrefix(string(text), "x = 6\nx * 7\ndef f():\n") {
		t.Errorf("history %v: %q", info.Mode(), text)
	}
}

// TestReplDraws checks that a figure is drawn on a terminal that can draw it, and that the end of the kernel does not end
// the session.
func TestReplDraws(t *testing.T) {
	b := newBox(t)
	term := b.terminal("repl", "--kernel", "demesne")
	eventually(t, "the probe", func() bool { return strings.Contains(term.screen(), "\x1b[c") })
	term.typ("\x1b_Gi=31;OK\x1b\\\x1b[?62c")
	term.expect(">>> ")
	term.typ("display({'image/png': 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=='}, raw=True)\r")
	term.expect("\x1b_Ga=T,f=100,q=2,m=0;iVBORw0KGgo")
	term.typ("import os; os.kill(os.getpid(), 9)\r")
	term.expect("the kernel ended: killed (SIGKILL, 137)")
	term.expect("a new kernel runs")
	term.typ("print('still ' + 'here')\r")
	term.expect("still here")
	term.typ("exit(3)\r")
	if code := term.wait(); code != 3 {
		t.Errorf("exit %d", code)
	}
}
