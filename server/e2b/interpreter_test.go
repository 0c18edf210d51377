package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// contextsOf returns what list answers, as LANGUAGE words, and the ids.
func (r *rig) contextsOf(rec record) (languages string, ids []string) {
	r.Helper()
	_, text := r.send("GET", "/contexts", "", of(rec, "49999")...)
	var all []struct{ ID, Language string }
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		r.Fatalf("%s: %v", text, err)
	}
	for _, c := range all {
		languages += c.Language + " "
		ids = append(ids, c.ID)
	}
	return languages, ids
}

// TestContexts checks that the default contexts of Python and JavaScript are listed before they start, and precede others.
func TestContexts(t *testing.T) {
	r := newRig(t)
	rec := r.make(`{}`)
	if resp, text := r.send("POST", "/contexts", `{"language":"r"}`, of(rec, "49999")...); resp.StatusCode != 200 {
		t.Fatal(text)
	}
	languages, ids := r.contextsOf(rec)
	if _, again := r.contextsOf(rec); languages != "python javascript r " || again[0] != ids[0] {
		t.Errorf("%s, %q and then %q", languages, ids, again)
	}
	if r.fake.started != 1 {
		t.Errorf("%d kernels run for one that is used", r.fake.started)
	}
	_, text := r.send("POST", "/execute", `{"code":"x","context_id":"`+ids[0]+`"}`, of(rec, "49999")...)
	if !strings.Contains(text, "end_of_execution") || r.fake.started != 2 {
		t.Errorf("%s: %d kernels", text, r.fake.started)
	}
	if resp, text := r.send("DELETE", "/contexts/"+ids[1], "", of(rec, "49999")...); resp.StatusCode != 204 {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
	if languages, others := r.contextsOf(rec); languages != "python javascript r " || others[1] == ids[1] || r.fake.started != 2 {
		t.Errorf("after a removal: %s", languages)
	}
}

// TestKilled checks that the removal of a sandbox ends the connection of an execution there, which the SDKs report as the end
// of the sandbox, and that the end of a kernel is an error of the code.
func TestKilled(t *testing.T) {
	r := newRig(t)
	rec := r.make(`{}`)
	r.fake.execute = func(context.Context) error { return errors.New("the kernel ended") }
	if _, text := r.send("POST", "/execute", `{"code":"x"}`, of(rec, "49999")...); !strings.Contains(text, `"value":"the kernel ended"`) || !strings.Contains(text, "end_of_execution") {
		t.Errorf("%s", text)
	}
	r.fake.execute = func(ctx context.Context) error {
		r.api.store.get(rec.ID).remove(ctx)
		return errors.New("the sandbox is gone")
	}
	if _, text := r.send("POST", "/execute", `{"code":"x"}`, of(rec, "49999")...); !strings.HasSuffix(text, "<unexpected EOF>") || strings.Contains(text, "gone") {
		t.Errorf("%q", text)
	}
}

// TestKilledEarly checks the same while the kernel starts, and that the failed start of a kernel is an error otherwise.
func TestKilledEarly(t *testing.T) {
	r := newRig(t)
	rec := r.make(`{}`)
	r.fake.kernel = func() error { return errors.New("no such program") }
	if resp, text := r.send("POST", "/execute", `{"code":"x"}`, of(rec, "49999")...); resp.StatusCode != 500 || text != "no such program\n" {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
	starts, removed := make(chan bool), make(chan bool)
	r.fake.kernel = func() error {
		close(starts)
		r.fake.mu.Unlock() // which the removal needs
		defer r.fake.mu.Lock()
		<-removed
		return errors.New("the sandbox is gone")
	}
	go func() {
		<-starts
		r.control("DELETE", "/sandboxes/"+rec.ID, "")
		close(removed)
	}()
	req, _ := http.NewRequest("POST", r.http.URL+"/execute", strings.NewReader(`{"code":"x"}`))
	for _, h := range of(rec, "49999") {
		k, v, _ := strings.Cut(h, ": ")
		req.Header.Set(k, v)
	}
	if resp, err := http.DefaultClient.Do(req); err == nil {
		t.Errorf("%s: want no answer", resp.Status)
	}
}

// TestResults checks what kernels of Python add to the results of libraries that are imported after it. The libraries are
// pretences here; testdata/check.py checks the real ones, in an image that has them (TestRecipeTools).
func TestResults(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"pandas/__init__.py": "", "pandas/core/__init__.py": "", "PIL/__init__.py": "", "PIL/Image.py": "class Image:\n    def save(self, to): pass\n",
		"pandas/core/frame.py": "class DataFrame(dict):\n    size = 2\n",
	} {
		os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	code := "import sys, importlib.machinery\nbefore = set(sys.modules), set(globals()) | {'before'}\n" + results + `
assert set(sys.modules) == before[0] and set(globals()) == before[1], "what the prelude leaves"
import builtins, importlib.util, io
shown = []
builtins.display = shown.append
assert importlib.util.find_spec("matplotlib") is None
from pandas.core.frame import DataFrame
from PIL.Image import Image
print(DataFrame(a=[1, float("inf")])._repr_mimebundle_(), DataFrame(a=3)._repr_mimebundle_())
Image().save(io.BytesIO())
Image().save("x")
Image().show()
print(len(shown))
`
	cmd := exec.Command("python3", "-c", code)
	cmd.Env = append(cmd.Environ(), "PYTHONPATH="+dir)
	out, err := cmd.CombinedOutput()
	if want := "{'e2b/data': {'a': [1, None]}} {}\n2\n"; string(out) != want || err != nil {
		t.Errorf("%s, %v", out, err)
	}
}

// TestScoped checks, with the interpreters of the host, that variables hold only for the code.
func TestScoped(t *testing.T) {
	awkward := `a'b"c\d $HOME é`
	env := map[string]string{"DEMESNE_OLD": "new", "DEMESNE_NEW": awkward, "not.a-name": "x"}
	for _, c := range []struct {
		language, show string
		program        string
	}{
		{"python", `import os; print(os.environ["DEMESNE_OLD"], os.environ.get("DEMESNE_NEW"))`, "python3"},
		{"javascript", `console.log(process.env.DEMESNE_OLD, process.env.DEMESNE_NEW)`, "node"},
		{"r", `cat(Sys.getenv("DEMESNE_OLD"), Sys.getenv("DEMESNE_NEW", "None"), "\n")`, "Rscript"},
		{"bash", `echo "$DEMESNE_OLD ${DEMESNE_NEW-None}"`, "bash"},
	} {
		if _, err := exec.LookPath(c.program); err != nil {
			t.Logf("%s is not tested here: %v", c.language, err)
			continue
		}
		before, after := scoped(c.language, env)
		// Kernels get code in a message. As an argument, R's front end would split it at tabs.
		code := filepath.Join(t.TempDir(), "code")
		if err := os.WriteFile(code, []byte(strings.Join([]string{before, c.show, after, c.show}, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(c.program, code)
		cmd.Env = append(cmd.Environ(), "DEMESNE_OLD=old", "LC_ALL=C.UTF-8")
		out, err := cmd.CombinedOutput()
		got := strings.ReplaceAll(strings.ReplaceAll(string(out), " \n", "\n"), "undefined", "None")
		if want := "new " + awkward + "\nold None\n"; got != want || err != nil {
			t.Errorf("%s: %q, %v", c.language, got, err)
		}
	}
	if before, after := scoped("python", nil); before != "" || after != "" {
		t.Error("code without variables")
	}
}
