package integration

import (
	"fmt"
	"strings"
	"testing"
)

// TestMCPCodeBridge carries values between Python and Node, also hostile ones, and refuses what JSON does not have or what is too large.
func TestMCPCodeBridge(t *testing.T) {
	b := newBox(t)
	c := b.codeClient("DEMESNE_PREPARED_SESSIONS=0")
	py, js := c.session("python"), c.session("node")
	hostile := map[string]any{"é\u2028😀": []any{nil, true, 1.5, `'"\`, "</script>\n\x01demesne-value "}, "__proto__": map[string]any{"polluted": 1.0}}
	if r := c.must("bridge_data", args{"session_id": js, "key": "x", "data": hostile}); r.field("success") != "true" {
		t.Errorf("data: %v", r.Fields)
	}
	c.must("bridge_data", args{"session_id": py, "key": "y", "from_session_id": js, "from_key": "x"})
	c.execute(js, "const kept = 1")
	c.must("bridge_data", args{"session_id": js, "key": "back", "from_session_id": py, "from_key": "y"})
	if r := c.execute(py, `y == {"é\u2028😀": [None, True, 1.5, "'\"\\", "</script>\n\x01demesne-value "], "__proto__": {"polluted": 1}}`); r.value() != "True" {
		t.Errorf("in Python: %v, %v", r.Fields, c.execute(py, "ascii(y)").Fields)
	}
	if r := c.execute(js, `JSON.stringify(x) === JSON.stringify(back) && x["é\u2028😀"][2] === 1.5 && ({}).polluted === undefined`); r.value() != "true" {
		t.Errorf("in Node: %v", r.Fields)
	}
	if r := c.execute(py, "sorted(n for n in globals() if n in ('json', 'names', 'key', 'value'))"); r.value() != "[]" {
		t.Errorf("names that the bridge left: %v", r.Fields)
	}
	c.execute(py, "big, nan, odd, loop = 'x' * 600000, float('nan'), {1, 2}, []\nloop.append(loop)")
	c.execute(js, "let none, huge = 10n, f = () => 1, long = 'x'.repeat(524287)")
	for _, step := range []struct {
		from, key, want string
	}{
		{py, "big", "more than 524288 bytes as JSON"}, {py, "nan", "ValueError: Out of range float"}, {py, "odd", "TypeError: Object of type set"},
		{py, "loop", "ValueError: Circular"}, {py, "nothing", "KeyError"}, {py, "class x", `"class x" is not a name of a variable`},
		{js, "none", "not a value of JSON"}, {js, "huge", "TypeError"}, {js, "f", "not a value of JSON"}, {js, "long", "more than 524288 bytes"}, {js, "nothing", "ReferenceError"},
	} {
		if r := c.call("bridge_data", args{"session_id": js, "key": "z", "from_session_id": step.from, "from_key": step.key}); !r.IsError || !strings.Contains(r.Text, step.want) {
			t.Errorf("%s: %q, want %q", step.key, r.Text, step.want)
		}
	}
	for key, want := range map[string]string{"kept": "TypeError: Assignment to constant", "a;b": "is not a name", "if": "SyntaxError"} {
		if r := c.call("bridge_data", args{"session_id": js, "key": key, "data": 1}); !r.IsError || !strings.Contains(r.Text, want) {
			t.Errorf("set %s: %q", key, r.Text)
		}
	}
	sh := c.session("bash")
	if r := c.call("bridge_data", args{"session_id": sh, "key": "x", "data": 1}); !r.IsError || !strings.Contains(r.Text, "python, node and r can") {
		t.Errorf("bash: %q", r.Text)
	}
}

// TestMCPCodeKernel pings kernels that are ready, busy and dead, and restarts them: variables are lost, and files stay.
func TestMCPCodeKernel(t *testing.T) {
	b := newBox(t)
	c := b.codeClient("DEMESNE_PREPARED_SESSIONS=0")
	action := func(s, what string) answer { return c.must("kernel_action", args{"session_id": s, "action": what}) }
	for language, code := range map[string]struct{ set, get, run, die string }{
		"python": {"x = 7; open('f', 'w').write('kept')", "open('f').read() + str('x' in globals())", "while True: pass", "import os; os.kill(os.getpid(), 9)"},
		"node":   {"x = 7; require('fs').writeFileSync('f', 'kept')", "require('fs').readFileSync('f') + (typeof x === 'undefined' ? 'False' : 'True')", "for (;;) {}", "process.kill(process.pid, 'SIGKILL')"},
	} {
		s := c.session(language)
		c.execute(s, code.set)
		if r := action(s, "ping"); r.field("status") != "ready" {
			t.Errorf("%s: %v", language, r.Fields)
		}
		ran := make(chan answer, 1)
		go func() { ran <- c.call("execute_code", args{"session_id": s, "code": code.run, "timeout": 300}) }()
		eventually(t, "a busy kernel", func() bool { return action(s, "ping").field("status") == "busy" })
		if r := action(s, "restart"); r.field("status") != "ready" {
			t.Errorf("%s: restart: %v", language, r.Fields)
		}
		if r := <-ran; !r.IsError || r.failure("message") != "restarted" {
			t.Errorf("%s: what ran: %v", language, r.Fields)
		}
		c.call("execute_code", args{"session_id": s, "code": code.die})
		if r := action(s, "ping"); r.field("status") != "dead" || r.field("success") != "false" || !strings.Contains(r.field("error"), "SIGKILL") {
			t.Errorf("%s: after its death: %v", language, r.Fields)
		}
		action(s, "restart")
		if r := c.execute(s, code.get); !strings.Contains(r.value(), "keptFalse") {
			t.Errorf("%s: after two restarts: %v", language, r.Fields)
		}
	}
}

// TestMCPCodeImports completes the imports of Python and JavaScript without executing it, and reports patterns only on request.
func TestMCPCodeImports(t *testing.T) {
	b := newBox(t)
	c := b.codeClient("DEMESNE_PREPARED_SESSIONS=0")
	const text = `"""Does things."""
from __future__ import annotations
import sys

def f(re):
    return re.group(), [os for os in ()]

print(os.getcwd(), np.zeros(3), Path("x"), code, json.dumps({}), datetime.now(), undefined)
eval("1")
`
	r := c.must("validate_code", args{"language": "python", "code": text, "fix_imports": true})
	const added = "from pathlib import Path\nfrom datetime import datetime\nimport json\nimport numpy as np\nimport os\n"
	head, tail, _ := strings.Cut(text, "import sys\n")
	if want := head + added + "import sys\n" + tail; r.field("fixed_code") != want || r.Fields["patterns"] != nil {
		t.Errorf("fixed_code:\n%s\nwant\n%s", r.field("fixed_code"), want)
	}
	for code, want := range map[string]string{
		"#!/usr/bin/python3\nos.getcwd()": "#!/usr/bin/python3\nimport os\nos.getcwd()", "\r\nos.getcwd()\r\n": "import os\n\nos.getcwd()\n",
		"'doc'": "<nil>", "from os import *\nre.match()": "<nil>", "import os\nos.getcwd()": "<nil>", "x = (": "<nil>", "def f():\n  global re\n  re = 1\nre.x": "<nil>",
	} {
		if got := c.must("validate_code", args{"language": "python", "code": code, "fix_imports": true}); fmt.Sprint(got.Fields["fixed_code"]) != want {
			t.Errorf("%q: %v", code, got.Fields)
		}
	}
	for code, want := range map[string]string{
		"#!/usr/bin/node\n// x\n'use strict'; // y\nfs.readFileSync(os.devNull)": "#!/usr/bin/node\n// x\n'use strict'; // y\nconst fs = require(\"node:fs\");\nconst os = require(\"node:os\");\nfs.readFileSync(os.devNull)",
		"export default await fs.promises.stat('/')":                             "import fs from \"node:fs\";\nexport default await fs.promises.stat('/')",
		"await util.promisify(f)()":                                              "import util from \"node:util\";\nawait util.promisify(f)()",
		"import fs from 'node:fs'; fs.x":                                         "<nil>", "f = path => path.x": "<nil>", "a.fs.x; process.exit(); 'fs.x' // os.x": "<nil>", "const {url} = a; url.b": "<nil>",
		"x = `it's`; const fs = 1; y = 'z'; fs.x": "<nil>", "module.exports = 1": "<nil>",
	} {
		if got := c.must("validate_code", args{"language": "node", "code": code, "fix_imports": true}); fmt.Sprint(got.Fields["fixed_code"]) != want {
			t.Errorf("%q: %v", code, got.Fields)
		}
	}
	if r := c.call("validate_code", args{"language": "shell", "code": "ls", "fix_imports": true}); !r.IsError || !strings.Contains(r.Text, "imports of shell cannot be completed") {
		t.Errorf("shell: %q", r.Text)
	}
	r = c.must("validate_code", args{"language": "shell", "code": "# safe\nrm -rf /\ncurl x | sh\nls\n", "dangerous_patterns": true})
	if !strings.Contains(r.Text, "valid: true\npattern: line 2, column 1: deletes a directory by an absolute or computed path\npattern: line 3, column 1: executes text as code\n") {
		t.Errorf("patterns: %q", r.Text)
	}
}
