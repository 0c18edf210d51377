package kernels_test

import (
	"strings"
	"testing"
	"time"

	"demesne/kernels"
	"demesne/kernels/driver"
	"demesne/runner"
)

func TestNodeDriver(t *testing.T) {
	k := startDriver(t, "node")
	for _, test := range []struct {
		code string
		told
	}{
		{"const x = 20", told{}},
		{"const x = 21; let y = 1\nclass A {}", told{}},
		{"x + y", told{value: "22"}},
		{"class A {}; new A()", told{value: "A {}"}},
		{"console.log('a'); require('child_process').execSync('echo b', {stdio: 'inherit'}); console.log('c'); console.error('d'); undefined", told{out: "a\nb\nc\n", errs: "d\n"}},
		{"require('fs').writeSync(1, 'raw\\n'); undefined", told{out: "raw\n"}},
		{"await new Promise(f => setTimeout(f, 1, 'slept'))", told{value: "'slept'"}},
		{"(async () => 5)()", told{value: "5"}},
		{"const z = await Promise.resolve(7)\nz + x", told{value: "28"}},
		{"import { sep as s } from 'node:path'\nimport fs, { existsSync } from 'fs'\nimport * as os from \"os\"; [s, existsSync('/'), typeof os.EOL, typeof fs.statSync]", told{value: "[ '/', true, 'string', 'function' ]"}},
		{"(await import('path')).sep + 'import(1)' + `import(2)` + /import(3)/.source", told{value: "'/import(1)import(2)import(3)'"}},
		{"function f() { throw new TypeError('bad') }\nf()", told{error: "TypeError: bad"}},
		{"throw 5", told{error: "Error: 5"}},
		{"x +", told{error: "SyntaxError: Unexpected end of input"}},
		{"Promise.reject(new Error('late'))", told{error: "Error: late"}},
		{"Promise.reject(new Error('lost')); 1", told{error: "Error: lost"}},
		{"setTimeout(() => { throw new RangeError('later') }, 20); 1", told{error: "RangeError: later"}},
		{"setTimeout(() => console.log('drained'), 30); 1", told{value: "1", out: "drained\n"}},
		{"process.exit(3)", told{error: "ProcessExit: 3"}},
		{"setTimeout(() => process.exit(4), 1); await new Promise(f => setTimeout(f, 20)); 2", told{error: "ProcessExit: 4"}},
		{"prompt()", told{error: "Error: prompt() is not available here: no one is there to answer. Put the value into the code."}},
		{"[NaN, -0, 10n, null, undefined, Symbol.iterator]", told{value: "[ NaN, -0, 10n, null, undefined, Symbol(Symbol.iterator) ]"}},
		{"10n", told{value: "10n"}},
		{"-0", told{value: "-0"}},
		{"null", told{value: "null"}},
		{"_", told{value: "null"}},
		{"new Map([[1, [2]]])", told{value: "Map(1) { 1 => [ 2 ] }"}},
		{"process.stdout.write('é'); process.stdout.write(Buffer.from([0xc3])); process.stdout.write(Buffer.from([0xa9, 10])); undefined", told{out: "éé\n"}},
		{"({ [Symbol.for('nodejs.util.inspect.custom')]() { throw 1 } })", told{value: "<object: inspect failed>"}},
		{"x", told{value: "21"}},
	} {
		if got := tell(execute(t, k, test.code)); got != test.told {
			t.Errorf("%s:\n got %q\nwant %q", test.code, got, test.told)
		}
	}
	r := execute(t, k, "function g() {\n  throw new Error('deep')\n}\ng()")
	if want := []string{"Error: deep", "    at g (cell-31:2:9)", "    at cell-31:4:1"}; strings.Join(r.Error.Traceback, "|") != strings.Join(want, "|") {
		t.Errorf("traceback %q", r.Error.Traceback)
	}
	if r := execute(t, k, "let q = 1\nq q"); len(r.Error.Traceback) != 2 || r.Error.Traceback[0] != "cell-32:2\nq q\n  ^" {
		t.Errorf("traceback %q", r.Error.Traceback)
	}
}

func TestNodeDisplays(t *testing.T) {
	k := startDriver(t, "node")
	r := execute(t, k, `console.log('before')
const d = await display({toHtml() { return '<b>1</b>' }}, {displayId: true})
await d.update({'text/markdown': '*2*'}, {raw: true})
await display({[Symbol.for('Jupyter.display')]: () => ({'application/json': {a: 1}, 'text/plain': 'p'})})
;({_toMime: () => ({'image/png': Buffer.from('png')}), toSvg: () => '<svg/>'})`)
	if len(r.Displays) != 2 || r.Error != nil {
		t.Fatalf("%+v", r)
	}
	if s, _ := r.Displays[0].Text("text/markdown"); s != "*2*" {
		t.Errorf("updated display %s", r.Displays[0])
	}
	if s := string(r.Displays[1]["application/json"]); s != `{"a":1}` {
		t.Errorf("display %s", r.Displays[1])
	}
	if b, err := r.Value.Bytes("image/png"); string(b) != "png" || string(r.Value["image/svg+xml"]) != `"<svg/>"` {
		t.Errorf("value %s, %v", r.Value, err)
	}
	r = execute(t, k, "console.log(1); clearOutput(true); console.log(2)")
	if out := tell(r).out; out != "2\n" {
		t.Errorf("after clearOutput: %q", out)
	}
}

// TestNodeInterrupt ends endless code wherever it runs, and keeps the state.
func TestNodeInterrupt(t *testing.T) {
	t.Cleanup(kernels.SetInterruptGrace(5 * time.Minute)) // it checks that code ends, on a slow machine too
	k := startDriver(t, "node")
	execute(t, k, "let x = 1")
	for _, code := range []string{
		"for (;;) {}",
		"await null; for (;;) {}",
		"await new Promise(() => {})",
		"await new Promise(f => setTimeout(f, 10)); for (;;) {}",
		"setTimeout(() => { for (;;) {} }, 1); await new Promise(() => {})",
		"setTimeout(() => { for (;;) {} }, 1)",
		"setImmediate(() => { for (;;) {} }); process.nextTick(() => { for (;;) {} })",
		"for (;;) { try { for (;;) {} } catch {} }",
		"require('child_process').execSync('sleep 100')",
		"({toHtml() { for (;;) {} }})",
	} {
		r, err := k.Execute(t.Context(), kernels.Execution{Code: "x++;" + code, Timeout: time.Second})
		if err != nil || !r.TimedOut || r.Error == nil || r.Value != nil {
			t.Errorf("%s: %+v %q, %v; %s", code, r, tell(r), err, k.Said())
		}
	}
	if got := tell(execute(t, k, "x")); got.value != "11" {
		t.Errorf("after timeouts: %q", got)
	}
}

func TestNodeAsk(t *testing.T) {
	k := startDriver(t, "node")
	execute(t, k, "const äpfel = { rot: 1, rund: 2 }; function f(a) { return a }")
	matches, start, end, err := k.Complete(t.Context(), "1; äpfel.ro", len("1; äpfel.ro"))
	if err != nil || strings.Join(matches, " ") != "rot" || start != len("1; äpfel.") || end != len("1; äpfel.ro") {
		t.Errorf("complete: %q %d %d %v", matches, start, end, err)
	}
	if matches, _, _, err = k.Complete(t.Context(), "äp", 3); err != nil || strings.Join(matches, " ") != "äpfel" {
		t.Errorf("complete: %q %v", matches, err)
	}
	b, err := k.Inspect(t.Context(), "f(1)", 1, true)
	if s, _ := b.Text("text/plain"); err != nil || !strings.Contains(s, "function f(a) { return a }") {
		t.Errorf("inspect: %s %v", b, err)
	}
	for code, want := range map[string]string{
		"1": "complete", "for (const a of []) {": "incomplete", "f(1,": "incomplete", "`a": "incomplete", "1 1": "invalid",
		"await f()": "complete", "import fs from 'fs'": "complete", "for await (const a of b) {}": "complete", "}": "invalid",
	} {
		if got, _, err := k.IsComplete(t.Context(), code); err != nil || got != want {
			t.Errorf("%s is %s, %v", code, got, err)
		}
	}
}

func TestNodeManyLines(t *testing.T) {
	k := startDriver(t, "node")
	r := execute(t, k, "for (let n = 0; n < 3e5; n++) console.log(n)")
	out := string(r.Stdout.End(100))
	if !strings.HasSuffix(out, "299998\n299999\n") || r.Stdout.Bytes != 1988890 {
		t.Errorf("%d bytes, last %q", r.Stdout.Bytes, out)
	}
}

// TestTypeScript strips types where Node.js can, and says so where it cannot.
func TestTypeScript(t *testing.T) {
	k, err := kernels.StartDriver(t.Context(), local{t}, runner.Command{Argv: driver.Argv("typescript")})
	if err != nil {
		if !strings.Contains(err.Error(), "does not run TypeScript: 22.13 and later do") {
			t.Error(err)
		}
		return
	}
	t.Cleanup(k.Kill)
	for code, want := range map[string]told{
		"const x: number = 5; interface A { a: string }":         {},
		"await Promise.resolve<string>('a')":                     {value: "'a'"},
		"import { sep, type Path } from 'path'; (sep as string)": {value: "'/'"},
	} {
		if got := tell(execute(t, k, code)); got != want {
			t.Errorf("%s: %q", code, got)
		}
	}
}
