package kernels_test

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"strings"
	"testing"
	"time"

	"demesne/kernels"
)

// TestPythonProcesses executes code that forks, starts threads and leaves processes. Only the kernel itself answers, once
// for each execution, and its state and outputs stay in order.
func TestPythonProcesses(t *testing.T) {
	k := startDriver(t, "python")
	for _, test := range []struct {
		code string
		told
	}{
		{"print('\\ud800')", told{out: "\\ud800\n"}},
		{"import os, sys, time, threading, subprocess, multiprocessing", told{}},
		{"child = os.fork()\nif child: os.waitpid(child, 0)\nprint('parent' if child else 'child')", told{out: "child\nparent\n"}},
		{"child = os.fork()\nif not child: raise ValueError('in the copy')\nos.waitpid(child, 0)[1] >> 8", told{
			errs: "Traceback (most recent call last):\n  File \"<cell 4>\", line 2, in <module>\n    if not child: raise ValueError('in the copy')\n                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\nValueError: in the copy\n", value: "1"}},
		{"child = os.fork()\nif not child: sys.exit(5)\nos.waitpid(child, 0)[1] >> 8", told{value: "5"}},
		{"child = os.fork()\nif not child: display('forged')\nelse: os.waitpid(child, 0)\nNone", told{}},
		{"def double(n): return 2 * n\nwith multiprocessing.get_context('fork').Pool(2) as p: got = p.map(double, range(3))\ngot", told{value: "[0, 2, 4]"}},
		{"p = subprocess.Popen(['sleep', '100'])", told{}},
		{"p.kill(), p.wait()\nos.system('echo a >&2'); subprocess.run(['sh', '-c', 'echo b; ls /proc/self/fd | wc -l'])\nNone", told{out: "b\n4\n", errs: "a\n"}},
		{"gate = threading.Event()\nlate = threading.Thread(target=lambda: (gate.wait(), print('late')))\nlate.start()", told{}},
		{"gate.set()\nlate.join()", told{out: "late\n"}},
		{"ends = threading.Thread(target=lambda: sys.exit(3))\nends.start()\nends.join()", told{}},
		{"for n in range(3000): print(n, file=sys.stderr)\nos.system('echo x >&2')\nsys.stderr.write('y\\n')\nNone", told{errs: numbers(3000) + "x\ny\n"}},
		{"n = os.dup(1)\nos.close(1)\nprint('nowhere')", told{error: "OSError: [Errno 9] Bad file descriptor"}},
		{"os.dup2(n, 1)\nprint('again')", told{out: "nowhere\nagain\n"}},
		{"sys.stdout.close()", told{}},
		{"sys.stdout = open(1, 'w', closefd=False)\nprint('own')", told{out: "own\n"}},
		{"os.write(1, b'\\xe2\\x82')\nos.write(1, b'\\xac\\xff\\n')\nNone", told{out: "€\uFFFD\n"}},
		{"import io, contextlib\nwith contextlib.redirect_stdout(io.StringIO()) as s: print('caught')\ns.getvalue()", told{value: "'caught\\n'"}},
		{"'\\ud800'", told{value: `'\ud800'`}},
		{"class Bad:\n    def __repr__(self): raise RuntimeError\nBad()", told{value: "<Bad: repr failed: RuntimeError>"}},
		{"class Worse(Exception):\n    def __str__(self): raise RuntimeError\nraise Worse", told{error: "Worse: "}},
		{"def deep(): deep()\ndeep()", told{error: "RecursionError: maximum recursion depth exceeded"}},
		{"display({'application/json': float('nan'), 'text/plain': 'p'}, raw=True)", told{}},
		{"1", told{value: "1"}},
	} {
		got := tell(execute(t, k, test.code))
		got.errs = strings.ReplaceAll(got.errs, "                  ~~~~~^^^", "") // versions mark places differently
		if got != test.told {
			t.Errorf("%s:\n got %.300q\nwant %.300q", test.code, got, test.told)
		}
	}
	r := execute(t, k, "'x' * 10**7")
	if s, _ := r.Value.Text("text/plain"); len(s) < 1<<20 || len(s) > 1<<20+100 || !strings.HasSuffix(s, "... (10000002 characters)") {
		t.Errorf("a long value has %d characters, and ends in %.50q", len(s), s[max(0, len(s)-50):])
	}
	r = execute(t, k, "raise ValueError('x' * 10**7)")
	if len(r.Error.Message) > 64<<10 || r.Error.Type != "ValueError" {
		t.Errorf("a long message has %d bytes", len(r.Error.Message))
	}
}

func numbers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

// TestPythonShellLines executes lines for the shell among Python, as notebooks write them.
func TestPythonShellLines(t *testing.T) {
	k := startDriver(t, "python")
	for _, test := range []struct {
		code string
		told
	}{
		{"!echo \"a 'b'\"; exit 3", told{out: "a 'b'\n"}},
		{"_exit_code", told{value: "3"}},
		{"for n in range(2):\n    !echo line >&2\nn", told{errs: "line\nline\n", value: "1"}},
		{"'''\n!kept\n'''", told{value: `'\n!kept\n'`}},
		{"!true\nraise ValueError('x')", told{error: "ValueError: x"}},
		{"!true\n1 +", told{error: "SyntaxError: invalid syntax"}},
	} {
		got := tell(execute(t, k, test.code))
		if test.error != "" {
			got.errs, got.error = "", strings.SplitN(got.error, " (", 2)[0]
		}
		if got != test.told {
			t.Errorf("%s:\n got %.300q\nwant %.300q", test.code, got, test.told)
		}
	}
}

// TestPythonSwallows interrupts code that catches two interrupts.
func TestPythonSwallows(t *testing.T) {
	k := startDriver(t, "python")
	r := timedOut(t, k, `import time
caught = 0
while caught < 2:
    try: print('up'), time.sleep(100)
    except KeyboardInterrupt: caught += 1
time.sleep(100)`)
	if r.Error.Type != "KeyboardInterrupt" {
		t.Errorf("%+v", r)
	}
	execute(t, k, "import asyncio")
	r, err := k.Execute(t.Context(), kernels.Execution{Timeout: time.Second, Code: `async def wait():
    try: await asyncio.sleep(100)
    finally: print('ended')
await wait()`})
	if err != nil || tell(r) != (told{out: "ended\n", error: "KeyboardInterrupt: "}) {
		t.Errorf("%q, %v", tell(r), err)
	}
	if got := tell(execute(t, k, "caught")); got.value != "2" {
		t.Errorf("%q", got)
	}
}

// TestPythonFigures compares images, and checks that plotly's figures are outputs wherever the code shows them.
func TestPythonFigures(t *testing.T) {
	k := startDriver(t, "python")
	r := execute(t, k, `import struct, zlib
class Picture:
    def _repr_png_(self):
        rows = b"".join(b"\0" + b"".join(bytes((x * 10, y * 20, 7)) for x in range(16)) for y in range(9))
        part = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">IIBBBBB", 16, 9, 8, 2, 0, 0, 0)) + part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b"")
display(Picture())
Picture()`)
	if len(r.Displays) != 1 {
		t.Fatalf("%+v %+v", r, r.Error)
	}
	want := image.NewRGBA(image.Rect(0, 0, 16, 9))
	for x := range 16 {
		for y := range 9 {
			want.Set(x, y, color.RGBA{uint8(x * 10), uint8(y * 20), 7, 255})
		}
	}
	for _, b := range []kernels.Bundle{r.Displays[0], r.Value} {
		raw, err := b.Bytes("image/png")
		if err != nil {
			t.Fatal(err)
		}
		got, err := png.Decode(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, want)
	}
	r = execute(t, k, `import os, sys, tempfile
where = tempfile.mkdtemp()
os.mkdir(where + "/plotly")
open(where + "/plotly/__init__.py", "w").close()
open(where + "/plotly/basedatatypes.py", "w").write("""
class BaseFigure:
    def to_plotly_json(self): return {"data": []}
    def to_json(self): return '{"data": [1]}'
    def show(self): raise RuntimeError("a browser")
""")
sys.path.insert(0, where)
import plotly.basedatatypes
f = plotly.basedatatypes.BaseFigure()
f.show()
f`)
	const form = "application/vnd.plotly.v1+json"
	if len(r.Displays) != 1 || string(r.Displays[0][form]) != `{"data": [1]}` || string(r.Value[form]) != `{"data": [1]}` {
		t.Errorf("plotly: %s, %s, %+v", r.Displays, r.Value, r.Error)
	}
}

// same compares images pixel by pixel.
func same(t *testing.T, got, want image.Image) {
	t.Helper()
	if got.Bounds() != want.Bounds() {
		t.Fatalf("the image has %v, want %v", got.Bounds(), want.Bounds())
	}
	for y := range got.Bounds().Dy() {
		for x := range got.Bounds().Dx() {
			r1, g1, b1, _ := got.At(x, y).RGBA()
			r2, g2, b2, _ := want.At(x, y).RGBA()
			if r1 != r2 || g1 != g2 || b1 != b2 {
				t.Fatalf("pixel %d,%d is %v, want %v", x, y, got.At(x, y), want.At(x, y))
			}
		}
	}
}
