package code_test

import (
	"bytes"
	"encoding/base64"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"demesne/images"
	"demesne/images/imageref"
	"demesne/internal/need"
	"demesne/kernels"
	"demesne/kernels/code"
	"demesne/kernels/languages"
	"demesne/session"
)

// conversation is what a kernel of a language is expected to answer. The cases come from Jupyter's own tests of kernels
// (jupyter_kernel_test); a member that is empty is left out.
type conversation struct {
	info                  string // name of the language
	hello, warn           string // print "hello, world" and something on stderr
	fail, failed          string // raises an error of that name
	result, value         string // has that value
	rich, mime            string // has a value, or a display, with that MIME type
	complete, match       string // is completed to that, among others
	finished              []string
	unfinished, invalid   string
	inspect, known        string // tells something about that name
	clear                 string // prints "gone", clears it, and prints "kept"
	update                string // shows "first", and replaces it by "second"
	input                 string // asks for input, which fails
	set, wait, get, isSet string // sets a variable; runs for long; returns the variable's value
	async                 string // awaits at the top level; its value is result's
}

var python = conversation{
	info: "python", hello: "print('hello, world')", warn: "import sys; print('x', file=sys.stderr)",
	fail: "raise ValueError('no')", failed: "ValueError", result: "6 * 7", value: "42",
	rich: "class H:\n    def _repr_html_(self): return '<b>h</b>'\nH()", mime: "text/html",
	complete: "prin", match: "print", finished: []string{"1", "print('x')", "def f():\n    return 1\n\n"},
	unfinished: "for n in range(3):", invalid: "import = 7q", inspect: "len", known: "len", input: "input('? ')",
	set: "kept = 5", wait: "import time\nwhile True: time.sleep(0.1)", get: "kept", isSet: "5",
	async: "import asyncio\nawait asyncio.sleep(0, 42)",
	clear: "print('gone'); clear_output(); print('kept')", update: "d = display('first', display_id='a'); d.update('second')",
}

var ipython = func() conversation {
	c := python
	c.clear = "from IPython.display import clear_output, display\n" + c.clear
	return c
}()

var node = conversation{
	info: "javascript", hello: "console.log('hello, world')", warn: "console.error('x')",
	fail: "throw new RangeError('no')", failed: "RangeError", result: "6 * 7", value: "42",
	rich: "({ toHtml() { return '<b>h</b>' } })", mime: "text/html",
	complete: "consol", match: "console", finished: []string{"1", "const a = 1;", "await f()"},
	unfinished: "for (const a of [1]) {", invalid: "let let = 7q", inspect: "parseInt", known: "parseInt", input: "prompt('? ')",
	set: "const kept = 5", wait: "for (;;) {}", get: "kept", isSet: "5", async: "await new Promise(f => setTimeout(f, 1, 42))",
	clear: "console.log('gone'); clearOutput(); console.log('kept')", update: "const d = await display('first', {displayId: 'a'}); await d.update('second'); undefined",
}

// converse has the conversation with the kernel of a session.
func converse(t *testing.T, s *code.Session, c conversation) {
	k := s.Kernel()
	if k.Info.Language.Name != c.info || k.Info.Language.Extension == "" || k.Info.Protocol == "" {
		t.Errorf("info: %+v", k.Info)
	}
	run := func(text string) *kernels.Result {
		t.Helper()
		r, err := s.Execute(t.Context(), kernels.Execution{Code: text, Timeout: 30 * time.Second})
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return r
	}
	out := func(r *kernels.Result) string { return string(r.Stdout.End(1 << 20)) }
	value := func(r *kernels.Result) string { // IRkernel displays values, and tslab prints them
		for _, b := range append(r.Displays, r.Value) {
			if s, ok := b.Text("text/plain"); ok {
				return strings.TrimPrefix(s, "[1] ")
			}
		}
		return strings.TrimSpace(out(r))
	}
	if r := run(c.hello); out(r) != "hello, world\n" || r.Error != nil || r.Stderr.Bytes != 0 {
		t.Errorf("hello: %+v", r)
	}
	if r := run(c.warn); r.Stderr.Bytes == 0 || r.Error != nil {
		t.Errorf("stderr: %+v", r)
	}
	before := run(c.result).Count
	if r := run(c.result); value(r) != c.value || r.Count != before+1 {
		t.Errorf("result: %+v", r)
	}
	if r := run(c.fail); r.Error == nil || c.failed != "" && r.Error.Type != c.failed || r.Value != nil {
		t.Errorf("error: %+v", r.Error)
	}
	if c.async != "" {
		if r := run(c.async); value(r) != c.value {
			t.Errorf("await: %+v %+v", r, r.Error)
		}
	}
	if c.rich != "" {
		r := run(c.rich)
		if !slices.ContainsFunc(append(r.Displays, r.Value), func(b kernels.Bundle) bool { return len(b[c.mime]) > 0 }) {
			t.Errorf("no %s in %s, %s", c.mime, r.Value, r.Displays)
		}
	}
	if c.clear != "" {
		if r := run(c.clear); out(r) != "kept\n" {
			t.Errorf("clear_output: %q %+v", out(r), r.Error)
		}
	}
	if c.update != "" {
		if r := run(c.update); len(r.Displays) != 1 || !strings.Contains(string(r.Displays[0]["text/plain"]), "second") {
			t.Errorf("update_display_data: %s %+v", r.Displays, r.Error)
		}
	}
	if c.input != "" {
		if r := run(c.input); r.Error == nil {
			t.Errorf("input: %+v", r)
		}
	}
	ask(t, k, c)
	run(c.set)
	if r, err := s.Execute(t.Context(), kernels.Execution{Code: c.wait, Timeout: 2 * time.Second}); err != nil || !r.TimedOut {
		t.Errorf("timeout: %+v, %v", r, err)
	}
	if r := run(c.get); value(r) != c.isSet {
		t.Errorf("after a timeout: %+v", r)
	}
	if r, err := s.Execute(t.Context(), kernels.Execution{Code: c.result, Silent: true}); err != nil || r.Error != nil {
		t.Errorf("silent: %+v, %v", r, err)
	}
}

// ask sends the requests that execute nothing.
func ask(t *testing.T, k *kernels.Running, c conversation) {
	if c.complete != "" {
		matches, start, end, err := k.Complete(t.Context(), "1; "+c.complete, len("1; "+c.complete))
		if err != nil || !slices.ContainsFunc(matches, func(m string) bool { return strings.TrimSuffix(m, "(") == c.match }) || start != len("1; ") || end != len("1; "+c.complete) {
			t.Errorf("complete: %q %d %d %v", matches, start, end, err)
		}
	}
	for text, want := range map[string]string{c.unfinished: "incomplete", c.invalid: "invalid"} {
		if got, _, err := k.IsComplete(t.Context(), text); text != "" && (err != nil || got != want) {
			t.Errorf("%q is %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range c.finished {
		if got, _, err := k.IsComplete(t.Context(), text); err != nil || got != "complete" {
			t.Errorf("%q is %s, %v", text, got, err)
		}
	}
	if c.inspect != "" {
		b, err := k.Inspect(t.Context(), c.inspect, len(c.inspect), false)
		if s, _ := b.Text("text/plain"); err != nil || !strings.Contains(s, c.known) {
			t.Errorf("inspect: %s, %v", b, err)
		}
	}
}

// TestKernelDrivers has a conversation with each of demesne's own kernels.
func TestKernelDrivers(t *testing.T) {
	d := newDesk(t)
	for name, c := range map[string]conversation{"python": python, "node": node} {
		t.Run(name, func(t *testing.T) { converse(t, d.start(options(t, name)), c) })
	}
}

// TestKernelHost has a conversation with the ipykernel of the host's files, which a session takes by itself.
func TestKernelHost(t *testing.T) {
	d := newDesk(t)
	_, err := os.Stat("/usr/share/jupyter/kernels/python3/kernel.json")
	need.That(t, err == nil, "python3-ipykernel")
	o := options(t, "python")
	o.Kernel = ""
	s := d.start(o)
	if s.Kernel().Info.Implementation != "ipython" {
		t.Fatalf("%+v", s.Kernel().Info)
	}
	converse(t, s, ipython)
	o.Kernel = "nothing"
	if _, err := code.Start(t.Context(), d.Service, o, session.Callbacks{}); err == nil || !strings.Contains(err.Error(), `no kernel "nothing"; the root has: `) {
		t.Errorf("an unknown kernel: %v", err)
	}
}

// TestKernelImage has conversations with the kernels of the image jupyter: ipykernel, IRkernel and tslab, and with
// demesne's own kernel in it.
func TestKernelImage(t *testing.T) {
	if os.Getenv("DEMESNE_RECIPES") == "" {
		t.Skip("downloads 1 GiB: make kernels")
	}
	d := newDesk(t)
	if store := os.Getenv("DEMESNE_FIXTURES"); store != "" && os.Getuid() == 0 { // it is root's
		t.Setenv("DEMESNE_IMAGE_STORE", filepath.Join(store, "kernels"))
	}
	pull := exec.Command(filepath.Join(os.Getenv("DEMESNE_BIN"), "demesne"), "pull", "jupyter")
	pull.Stderr = os.Stderr
	if err := pull.Run(); err != nil {
		t.Fatal(err)
	}
	tslab := node
	tslab.rich, tslab.clear, tslab.update, tslab.input = "require('tslab').display.html('<b>h</b>')", "", "", ""
	tslab.fail, tslab.failed = "throw new RangeError('no')", ""
	tslab.invalid, tslab.inspect, tslab.finished = "", "", []string{"1", "const a = 1;"}
	tslab.wait = "await new Promise(f => setTimeout(f, 1000000))"
	typescript := tslab
	typescript.info, typescript.set = "typescript", "const kept: number = 5"
	r := conversation{
		info: "R", hello: `cat("hello, world\n")`, warn: `message("x")`, fail: `stop("no")`, result: "6 * 7", value: "42",
		rich: "data.frame(a = 1:2)", mime: "text/html", complete: "zz$prin", set: "kept <- 5", wait: "Sys.sleep(1000)", get: "kept",
		isSet: "5", finished: []string{"1", "f <- function(x) { x }"}, unfinished: "for (n in 1:3) {", invalid: "x <- <-",
		inspect: "paste", known: "paste",
	}
	r.complete, r.match = "past", "paste"
	for name, c := range map[string]struct {
		language, kernel string
		conversation
	}{
		"ipykernel": {"python", "", ipython}, "IRkernel": {"r", "", r}, "jslab": {"node", "", tslab}, "tslab": {"", "tslab", typescript},
		"python": {"python", code.Driver, python}, "node": {"node", code.Driver, node},
	} {
		t.Run(name, func(t *testing.T) {
			ref, err := imageref.Parse("jupyter")
			if err != nil {
				t.Fatal(err)
			}
			o := code.Options{Kernel: c.kernel}
			o.Language, _ = languages.Find(c.language)
			o.Create.Image, o.Create.Pull = ref, images.PullNever
			s := d.start(o)
			converse(t, s, c.conversation)
			switch c.language {
			case "python":
				plot(t, s)
			case "r":
				valuesOfR(t, s)
			}
		})
	}
}

// valuesOfR checks that text is a value, that only figures are displayed, and that values can be carried.
func valuesOfR(t *testing.T, s *code.Session) {
	for text, want := range map[string]struct {
		value string
		shown []string
	}{
		"6 * 7": {value: "[1] 42"}, `c(a = "x")`: {value: "  a \n\"x\" "}, "1; 2": {"[1] 2", []string{"text/plain"}}, "NULL": {value: "NULL"}, "x <- 1": {},
		"plot(1); 5": {"[1] 5", []string{"image/png"}}, "library(ggplot2); ggplot(mtcars, aes(mpg, wt)) + geom_point()": {shown: []string{"image/png"}},
	} {
		r, err := s.Execute(t.Context(), kernels.Execution{Code: text, Timeout: time.Minute})
		if err != nil || r.Error != nil {
			t.Fatalf("%s: %+v, %v", text, r.Error, err)
		}
		var shown []string
		for _, b := range r.Displays {
			one, ok := code.Richest(b)
			if _, plain := code.Plain(b); plain || !ok {
				one.MIME = "text/plain"
			}
			shown = append(shown, one.MIME)
		}
		if got, _ := r.Value.Text("text/plain"); got != want.value || !slices.Equal(shown, want.shown) {
			t.Errorf("%s: value %q, shown %q", text, got, shown)
		}
	}
	if err := s.SetValue(t.Context(), "carried", []byte(`{"a": [1, 2.5], "é": "x\"y", "b": true}`)); err != nil {
		t.Error(err)
	}
	if got, err := s.Value(t.Context(), "carried"); err != nil || string(got) != `{"a":[1,2.5],"é":"x\"y","b":true}` {
		t.Errorf("carried: %s, %v", got, err)
	}
}

// plot draws with matplotlib, and compares the figure of the outputs with a file of the same figure.
func plot(t *testing.T, s *code.Session) {
	r, err := s.Execute(t.Context(), kernels.Execution{Timeout: time.Minute, Code: `import matplotlib.pyplot as plt, io, base64
def draw(color):
    figure = plt.figure(figsize=(3, 2), dpi=100, facecolor=color)
    figure.add_axes((0.25, 0.25, 0.5, 0.5)).plot([0, 1], [0, 1])
    return figure
file = io.BytesIO()
draw("red").savefig(file, format="png", bbox_inches="tight", facecolor="red")
plt.close("all")
print(base64.b64encode(file.getvalue()).decode())
draw("red")
plt.show()
draw("red")
None`})
	if err != nil || r.Error != nil || len(r.Displays) != 2 {
		t.Fatalf("%d displays, %+v, %v", len(r.Displays), r.Error, err)
	}
	file, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(r.Stdout.End(1 << 20))))
	if err != nil {
		t.Fatal(err)
	}
	want, err := png.Decode(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range r.Displays {
		raw, err := b.Bytes("image/png")
		if err != nil {
			t.Fatal(err)
		}
		got, err := png.Decode(bytes.NewReader(raw))
		if err != nil || got.Bounds() != want.Bounds() {
			t.Fatalf("%v, %v, want %v", got.Bounds(), err, want.Bounds())
		}
		for y := range want.Bounds().Dy() {
			for x := range want.Bounds().Dx() {
				if got.At(x, y) != want.At(x, y) {
					t.Fatalf("pixel %d,%d is %v, want %v", x, y, got.At(x, y), want.At(x, y))
				}
			}
		}
	}
}
