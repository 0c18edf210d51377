package integration

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// jupyter is a box with Jupyter's client and kernels of demesne.
type jupyter struct {
	*box
	work string // directory of the notebooks
}

func newJupyter(t *testing.T) *jupyter {
	t.Helper()
	need(t, python("import jupyter_client, nbconvert, nbformat, ipykernel"), "python3-nbconvert")
	b := newBox(t)
	j := &jupyter{b, b.mkdir("work")}
	b.extra = append(b.extra, "JUPYTER_DATA_DIR="+b.mkdir("data"), "JUPYTER_RUNTIME_DIR="+b.mkdir("runtime"), "JUPYTER_CONFIG_DIR="+b.mkdir("config"), "IPYTHONDIR="+b.mkdir("ipython"))
	j.file("work/beside", "of the host\n", 0o644)
	return j
}

// python reports whether Debian's Python executes a program without an error.
func python(code string) bool { return exec.Command("/usr/bin/python3", "-c", code).Run() == nil }

// install installs a kernel, and returns its name.
func (j *jupyter) install(name string, flags ...string) string {
	j.Helper()
	r := j.demesne(append([]string{"kernel", "install", "--name", name}, flags...)...)
	if r.code != 0 || !strings.Contains(r.stdout, "installed "+name+": "+j.dir+"/data/kernels/"+name) {
		j.Fatalf("install: %+v", r)
	}
	return name
}

// client runs a part of client.py.
func (j *jupyter) client(kernel, part string) {
	j.Helper()
	cmd := j.command("/usr/bin/python3", j.script("client.py"), kernel, part)
	cmd.Dir = j.work
	if r := j.finish(cmd); r.code != 0 || !strings.Contains(r.stdout, "done") {
		j.Errorf("client.py %s %s: exit %d\n%s\n%s", kernel, part, r.code, r.stdout, r.stderr)
	}
}

// script copies a file of testdata/jupyter to where every user can read it.
func (j *jupyter) script(name string) string {
	j.Helper()
	raw, err := os.ReadFile("testdata/jupyter/" + name)
	if err != nil {
		j.Fatal(err)
	}
	return j.file("prog/"+name, string(raw), 0o644)
}

// gone waits until no sandbox is left. One that might be restarted exists for half a minute more.
func (j *jupyter) gone() {
	j.Helper()
	eventually(j, "the sandbox to be removed", func() bool { return j.demesne("ls", "-q").stdout == "" })
}

// TestJupyterClient drives kernels in sandboxes with Debian's jupyter_client: demesne's own, and ipykernel.
func TestJupyterClient(t *testing.T) {
	j := newJupyter(t)
	j.client(j.install("driver", "--kernel", "demesne"), "tour")
	if made, err := os.ReadFile(j.work + "/made"); err != nil || string(made) != "by the kernel" {
		t.Errorf("the notebook's directory is not the workspace: %q, %v", made, err)
	}
	j.gone()
	j.client(j.install("real", "--kernel", "python3"), "tour")
	j.gone()
}

// TestJupyterWidgets checks that a kernel whose outputs are trusted has comms, which widgets need.
func TestJupyterWidgets(t *testing.T) {
	j := newJupyter(t)
	j.client(j.install("real", "--kernel", "python3", "--trust-output"), "comms")
	j.gone()
}

// TestJupyterHostileClients checks that other programs of this machine, which can connect to a kernel's ports, execute
// nothing and do not end it.
func TestJupyterHostileClients(t *testing.T) {
	j := newJupyter(t)
	j.client(j.install("driver", "--kernel", "demesne"), "peers")
	j.gone()
}

// TestJupyterDeaths checks that a death of the kernel is reported, and that nothing survives Jupyter.
func TestJupyterDeaths(t *testing.T) {
	j := newJupyter(t)
	name := j.install("driver", "--kernel", "demesne")
	j.client(name, "death")
	cmd := j.command("/usr/bin/python3", j.script("client.py"), name, "wait")
	cmd.Dir = j.work
	var out syncBuffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the kernel to start", func() bool { return strings.Contains(out.String(), "ready") })
	cmd.Process.Kill()
	cmd.Wait()
	began := time.Now()
	eventually(t, "the kernel to end with Jupyter", func() bool { return len(named("demesne-kernel")) == 0 })
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the kernel ended %v after Jupyter", took)
	}
	j.gone()
}

// TestJupyterConvert executes a notebook with nbconvert in a sandbox, and with demesne notebook run: the results are the
// same.
func TestJupyterConvert(t *testing.T) {
	j := newJupyter(t)
	j.install("real")
	notebook := j.notebook("report.ipynb", "import sys\nprint('a')\nprint('b')\nprint('c', file=sys.stderr)\n6 * 7", "# Title",
		"x = {'é': '\\u2028', 'n': 1.50}\nx", "", "from IPython.display import display, SVG\nh = display('first', display_id=True)\nh.update('second')", "len(open('/etc/passwd').read()) > 0 or 1 / 0")
	cmd := j.command("/usr/bin/python3", "-m", "nbconvert", "--to", "notebook", "--execute", "--ExecutePreprocessor.kernel_name=real", "--output", "theirs.ipynb", notebook)
	cmd.Dir = j.work
	if r := j.finish(cmd); r.code != 0 {
		t.Fatalf("nbconvert: %+v", r)
	}
	if r := j.demesne("notebook", "run", "--out", j.work+"/ours.ipynb", notebook); r.code != 0 || r.stderr != "" {
		t.Fatalf("notebook run: %+v", r)
	}
	ours, theirs := j.read("ours.ipynb"), j.read("theirs.ipynb")
	for _, c := range theirs["cells"].([]any) { // nbclient records when each cell was executed
		delete(c.(map[string]any)["metadata"].(map[string]any), "execution")
	}
	a, _ := json.MarshalIndent(ours, "", " ")
	b, _ := json.MarshalIndent(theirs, "", " ")
	if !bytes.Equal(a, b) {
		t.Errorf("ours:\n%s\ntheirs:\n%s", a, b)
	}
	check := j.command("/usr/bin/python3", "-c", "import nbformat, sys\nnb = nbformat.read(sys.argv[1], 4)\nnbformat.validate(nb)\nprint(nbformat.writes(nb) + '\\n' == open(sys.argv[1]).read())", j.work+"/ours.ipynb")
	if r := j.finish(check); strings.TrimSpace(r.stdout) != "True" {
		t.Errorf("nbformat reads and writes the notebook differently: %+v", r)
	}
	j.gone()
}

// notebook writes a notebook with cells. One that begins with a number sign is Markdown.
func (b *box) notebook(name string, cells ...string) string {
	b.Helper()
	all := []any{}
	for _, text := range cells {
		if strings.HasPrefix(text, "# ") {
			all = append(all, map[string]any{"cell_type": "markdown", "metadata": map[string]any{}, "source": []string{text}})
			continue
		}
		all = append(all, map[string]any{"cell_type": "code", "metadata": map[string]any{}, "source": text, "outputs": []any{}, "execution_count": nil})
	}
	raw, err := json.Marshal(map[string]any{
		"nbformat": 4, "nbformat_minor": 4, "cells": all,
		"metadata": map[string]any{"kernelspec": map[string]any{"name": "python3", "display_name": "Python 3", "language": "python"}, "mine": map[string]any{"a": 1}},
	})
	if err != nil {
		b.Fatal(err)
	}
	return b.file("work/"+name, string(raw), 0o644)
}

func (b *box) read(name string) (d map[string]any) {
	b.Helper()
	raw, err := os.ReadFile(filepath.Join(b.dir, "work", name))
	if err == nil {
		err = json.Unmarshal(raw, &d)
	}
	if err != nil {
		b.Fatal(err)
	}
	return d
}

// TestNotebookRun checks what demesne notebook run does with cells that fail, hang and end the kernel.
func TestNotebookRun(t *testing.T) {
	b := newBox(t)
	b.mkdir("work")
	out := func(name string, cell int) string {
		raw, _ := json.Marshal(b.read(name)["cells"].([]any)[cell].(map[string]any)["outputs"])
		return string(raw)
	}
	for _, c := range []struct {
		name       string
		flags      []string
		cells      []string
		code       int
		says, last string // of stderr, and of the outputs of the last cell
	}{
		{"fails", nil, []string{"print(1)", "def f():\n    1 / 0\nf()", "print(3)"}, 1, "demesne: notebook: cell 2: ZeroDivisionError: division by zero\nTraceback", "[]"},
		{"goes on", []string{"--allow-errors"}, []string{"1 / 0", "print(2)"}, 0, "", `[{"name":"stdout","output_type":"stream","text":["2\n"]}]`},
		{"hangs", []string{"--timeout", "1s"}, []string{"x = 1", "import time\nwhile True: time.sleep(1)"}, 1, "cell 2: interrupted after --timeout 1s", "KeyboardInterrupt"},
		{"dies", []string{"--allow-errors"}, []string{"print('a', flush=True)\nimport os\nos.kill(os.getpid(), 9)"}, 1, "cell 1: the kernel ended: killed (SIGKILL, 137)", "DeadKernelError"},
		{"control characters", nil, []string{"raise ValueError('\\x1b]0;evil\\x07')"}, 1, "ValueError: ?]0;evil?", "evil"},
	} {
		path := b.notebook("n.ipynb", c.cells...)
		os.Remove(b.dir + "/work/n.out.ipynb")
		r := b.demesne(append(append([]string{"notebook", "run", "--kernel", "demesne"}, c.flags...), path)...)
		if r.code != c.code || !strings.Contains(r.stderr, c.says) || c.says == "" && r.stderr != "" {
			t.Errorf("%s: %+v", c.name, r)
		}
		if got := out("n.out.ipynb", len(c.cells)-1); !strings.Contains(got, c.last) {
			t.Errorf("%s: the last cell has %s", c.name, got)
		}
	}
	if r := b.demesne("notebook", "run", "--kernel", "demesne", "--out", "-", b.notebook("n.ipynb", "1+1")); r.code != 0 || !strings.Contains(r.stdout, "\"2\"\n") {
		t.Errorf("--out -: %+v", r)
	}
	away := b.mkdir("away")
	b.mkdir("work/sub")
	planted := b.notebook("n.ipynb", "import os\nos.rename('sub', 'moved')\nos.symlink('"+away+"', 'sub')")
	for range 2 { // the second time, the link exists before
		b.demesne("notebook", "run", "--kernel", "demesne", "--workspace", b.dir+"/work", "--out", b.dir+"/work/sub/o.ipynb", planted)
		if left, err := os.ReadDir(away); err != nil || len(left) > 0 {
			t.Errorf("written outside of the workspace: %v, %v", left, err)
		}
	}
	if _, err := os.Stat(b.dir + "/work/moved/o.ipynb"); err != nil {
		t.Errorf("the executed notebook: %v", err)
	}
	for _, c := range []struct{ text, says string }{
		{"[]", "not a notebook"}, {`{"nbformat":3}`, `nbformat 4, but of "3"`}, {`{"nbformat":4,"cells":[],"metadata":{"kernelspec":{"language":"cobol"}}}`, `language "cobol": unknown`},
	} {
		if r := b.demesne("notebook", "run", b.file("work/bad.ipynb", c.text, 0o644)); r.code != 125 || !strings.Contains(r.stderr, c.says) {
			t.Errorf("%s: %+v", c.text, r)
		}
	}
}

// TestKernelInstall checks the places of kernelspecs, and that others' are not touched.
func TestKernelInstall(t *testing.T) {
	b := newBox(t)
	b.extra = append(b.extra, "XDG_DATA_HOME="+b.mkdir("xdg"))
	b.mkdir("rel")
	at := b.dir + "/xdg/jupyter/kernels/a/kernel.json"
	if r := b.demesne("kernel", "install", "--user", "--name", "a", "--image", "host", "--egress", "none", "--workspace", "rel", "--display-name", "My kernel", "--memory=1g"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	raw, _ := os.ReadFile(at)
	var spec struct {
		Argv []string
		Name string `json:"display_name"`
	}
	json.Unmarshal(raw, &spec)
	want := bin + "/demesne kernel run -f {connection_file} --image=host --egress=none --workspace=" + b.dir + "/rel --memory=1g"
	if got := strings.Join(spec.Argv, " "); got != want || spec.Name != "My kernel" {
		t.Errorf("argv is %s, want %s; name %q", got, want, spec.Name)
	}
	if r := b.demesne("kernel", "list"); !strings.HasPrefix(r.stdout, "a ") {
		t.Errorf("list: %+v", r)
	}
	other := b.file("xdg/jupyter/kernels/other/kernel.json", `{"argv":["python3","-m","ipykernel"],"display_name":"Other"}`, 0o644)
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"install", "--name", "other"}, "is another program's kernel"},
		{[]string{"remove", "other"}, `demesne has not installed a kernel "other"`},
		{[]string{"install"}, "needs --name NAME"},
		{[]string{"install", "--name", "../x"}, "not a name for a kernel"},
		{[]string{"install", "--name", "x", "--egress", "some"}, `egress "some"`},
		{[]string{"install", "--name", "x", "--language", "cobol"}, "unknown (known: "},
		{[]string{"install", "--name", "x", "--dependency", "--evil"}, "dependency"},
		{[]string{"run"}, "needs -f FILE"},
		{[]string{"run", "-f", "/nowhere"}, "no such file"},
		{[]string{"start"}, "unknown (known: install"},
	} {
		if r := b.demesne(append([]string{"kernel"}, c.args...)...); r.code != 125 || !strings.Contains(r.stderr, c.says) {
			t.Errorf("%q: %+v", c.args, r)
		}
	}
	for _, c := range []struct{ file, says string }{
		{`{"ip":"0.0.0.0","key":"k","signature_scheme":"hmac-sha256","shell_port":1,"iopub_port":2,"stdin_port":3,"control_port":4,"hb_port":5}`, "loopback only"},
		{`{"ip":"127.0.0.1","key":"","signature_scheme":"hmac-sha256","shell_port":1,"iopub_port":2,"stdin_port":3,"control_port":4,"hb_port":5}`, "no key"},
		{`{"ip":"127.0.0.1","key":"k","signature_scheme":"hmac-sha256","shell_port":1}`, "_port: missing"},
		{`{"transport":"inproc","ip":"127.0.0.1","key":"k","signature_scheme":"hmac-sha256"}`, "transport"},
		{`[]`, "cannot unmarshal"},
	} {
		if r := b.demesne("kernel", "run", "-f", b.file("c.json", c.file, 0o600)); r.code != 125 || !strings.Contains(r.stderr, c.says) {
			t.Errorf("%s: %+v", c.file, r)
		}
	}
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
	if r := b.demesne("kernel", "remove", "a"); r.code != 0 {
		t.Errorf("remove: %+v", r)
	}
	if _, err := os.Stat(filepath.Dir(at)); !os.IsNotExist(err) {
		t.Errorf("the kernelspec's directory remains: %v", err)
	}
}
