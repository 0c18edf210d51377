package kernels_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"demesne/kernels"
)

// TestLook finds kernelspecs in all places where Jupyter looks, and reads none that is hostile.
func TestLook(t *testing.T) {
	root := t.TempDir()
	file := func(name, content string) {
		t.Helper()
		path := filepath.Join(root, name)
		os.MkdirAll(filepath.Dir(path), 0o755)
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	spec := func(name, language, argv0 string) {
		file(name+"/kernel.json", `{"argv":["`+argv0+`","-f","{connection_file}","{resource_dir}"],"language":"`+language+`","display_name":"`+name+`","env":{"A":"1"}}`)
	}
	spec("home/.local/share/jupyter/kernels/mine", "python", "home")
	spec("home/.local/share/jupyter/kernels/PYTHON3", "python", "home")
	spec("venv/share/jupyter/kernels/python3", "python", "venv")
	spec("one/kernels/ir", "R", "one")
	spec("two/kernels/ir", "R", "two")
	spec("two/kernels/bash", "bash", "two")
	file("venv/bin/node", "")
	file("two/kernels/broken/kernel.json", `{"argv":`)
	file("two/kernels/empty/kernel.json", `{}`)
	file("two/kernels/types/kernel.json", `{"argv":[1]}`)
	file("two/kernels/nul/kernel.json", `{"argv":["a\u0000"]}`)
	file("two/kernels/env/kernel.json", `{"argv":["a"],"env":{"A=B":"1"}}`)
	file("two/kernels/many/kernel.json", `{"argv":["a"`+strings.Repeat(`,"a"`, 1000)+`]}`)
	file("two/kernels/large/kernel.json", `{"argv":["a"],"metadata":"`+strings.Repeat("a", 1<<20)+`"}`)
	file("two/kernels/deep/kernel.json", strings.Repeat("[", 60000))
	file("two/kernels/bad name/kernel.json", `{"argv":["a"]}`)
	file("two/kernels/shown/kernel.json", `{"argv":["a"],"display_name":"\u001b[31m\nred","language":"x\u0007"}`)
	if err := os.Mkdir(filepath.Join(root, "two/kernels/dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	os.MkdirAll(filepath.Join(root, "two/kernels/dir/kernel.json"), 0o755)
	os.Symlink("/dev/zero", filepath.Join(root, "two/kernels/zero"))
	t.Setenv("HOME", root+"/home")
	t.Setenv("PATH", root+"/venv/bin")
	t.Setenv("JUPYTER_PATH", root+"/one:"+root+"/two:relative:")
	r, err := kernels.Look(t.Context(), local{t}, "node", "", "ruby")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, language, want, argv0 string }{
		{"", "R", "ir", "one"}, {"", "r", "ir", "one"}, {"IR", "", "ir", "one"}, {"", "python", "python3", "home"}, {"mine", "", "mine", "home"},
		{"mine", "R", "mine", "home"}, {"", "bash", "bash", "two"}, {"", "julia", "", ""}, {"nothing", "python", "", ""}, {"", "", "", ""},
		{"broken", "", "", ""}, {"empty", "", "", ""}, {"types", "", "", ""}, {"nul", "", "", ""}, {"env", "", "", ""}, {"many", "", "", ""},
		{"large", "", "", ""}, {"deep", "", "", ""}, {"bad name", "", "", ""}, {"dir", "", "", ""}, {"zero", "", "", ""},
	} {
		s, ok := r.Spec(c.name, c.language)
		if s.Name != c.want || ok != (c.want != "") || ok && s.Argv[0] != c.argv0 {
			t.Errorf("Spec(%q, %q): %+v", c.name, c.language, s)
		}
	}
	if s, _ := r.Spec("shown", ""); strings.ContainsAny(s.DisplayName+s.Language, "\x1b\n\x07") {
		t.Errorf("shown: %q %q", s.DisplayName, s.Language)
	}
	if r.Programs["node"] != root+"/venv/bin/node" || len(r.Programs) != 1 {
		t.Errorf("programs: %q", r.Programs)
	}
}

// TestStartFromSpec starts a kernel by its kernelspec. The connection file is its user's alone.
func TestStartFromSpec(t *testing.T) {
	dir := t.TempDir()
	s := kernels.Spec{Name: "x", Dir: "/res", Argv: []string{"sh", "-c", `stat -c %a "$0" >&2; echo "$1 $A" >&2`, "{connection_file}", "{resource_dir}"}, Env: map[string]string{"A": "1"}}
	_, err := kernels.Start(t.Context(), local{t}, s, dir, "", 1)
	if err == nil || !strings.HasPrefix(err.Error(), "start kernel: the kernel has ended: ") || !strings.HasSuffix(err.Error(), ": /res 1") {
		t.Errorf("error %v", err)
	}
	all, _ := filepath.Glob(dir + "/*")
	if info, err := os.Stat(all[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}
