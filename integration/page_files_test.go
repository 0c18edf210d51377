package integration

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// hostileName is the name of a file whose content has markup, and ends what highlighters write.
const (
	hostileName = `<img src=x onerror=ran=1>&lt;.py`
	hostileText = "def ran():  # </span></pre><img src=/ran onerror=\"window.ran=1\">\n    return '</textarea><script>window.ran=1</script>', 42\n"
)

// inFiles opens the view of a path of the sandbox called "edit".
func (p *pageBrowser) inFiles(path, text string) {
	p.t.Helper()
	p.show("#/sandbox/edit/files/at/"+url.PathEscape(path), text)
}

// shell executes a script in the sandbox called "edit", and returns what it prints.
func (b *box) shell(script string) string {
	b.Helper()
	r := b.demesne("exec", "edit", "--", "sh", "-c", script)
	if r.code != 0 {
		b.Fatalf("%s: %+v", script, r)
	}
	return r.stdout
}

// TestPageFiles (N41) reads, edits, makes and searches files of a sandbox in Chromium. Names and contents have markup.
func TestPageFiles(t *testing.T) {
	program(t, "chromium")
	b := newBox(t)
	s := b.serveAPI()
	b.cli("create", "--name", "edit")
	dir := b.TempDir()
	for name, content := range map[string]string{hostileName: hostileText, "dos.ini": "[a]\r\nb = 1\r\n", "mixed.txt": "a\r\nb\n", "latin.txt": "caf\xe9\n", "Makefile": "all:\n\techo $@\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		b.cli("cp", filepath.Join(dir, name), "edit:/workspace/"+name)
	}
	p := b.browse(s, nil)
	p.source()
	p.edits(b)
	p.makes(b)
	p.searches()
	p.quiet("400 (Bad Request)", "404 (Not Found) "+s.url+"/v1/sandboxes/edit/files/raw")
	b.cli("rm", "edit")
}

// source looks at a file with line numbers and colours. What the highlighter's frame answers moves no markup into the page,
// and a highlighter that does not end leaves the page as it is.
func (p *pageBrowser) source() {
	p.t.Helper()
	p.inFiles("/workspace/"+hostileName, "return")
	p.await(`document.querySelector(".code .key")?.textContent === "def" && document.querySelector(".code .com").textContent.includes("<img")`)
	p.await(`document.querySelector(".code").textContent === ` + quote(hostileText) + ` && document.querySelector(".gutter").textContent === "1\n2"`)
	var found int
	p.check(p.Eval(`("ran" in window) + document.querySelectorAll("main img, main script, main textarea").length`, &found))
	if found > 0 {
		p.t.Error("a file's markup has an effect on the page")
	}
	p.picture("files-source")
	for _, answer := range []string{`[[5, "keyword"]]`, `[[text.length, "\"><img src=x onerror=ran=1>"]]`, `[[-1, "keyword"], [text.length + 1, "keyword"]]`, `[[text.length, "__proto__"]]`, `"x"`, `[null]`} {
		p.EvalFrames(`"hljs" in window ? (window.real ??= hljs.highlight, hljs.highlight = (text) => ({_emitter: {runs: ` + answer + `}}), "set") : ""`)
		p.inFiles("/workspace", "Choose a file")
		p.inFiles("/workspace/Makefile", "echo $@")
		var same bool
		if p.check(p.Eval(`new Promise(done => setTimeout(() => done(!document.querySelector("main img, .code span") && document.querySelector(".code").textContent === "all:\n\techo $@\n"), 300))`, &same)); !same {
			p.t.Errorf("the answer %s changes the page", answer)
		}
	}
	p.EvalFrames(`"hljs" in window ? (hljs.highlight = () => { for (;;); }, "set") : ""`)
	p.inFiles("/workspace", "Choose a file")
	p.inFiles("/workspace/Makefile", "echo $@")
	p.await(`!document.querySelector("iframe[title='Syntax colours']")`) // ended
	p.inFiles("/workspace/"+hostileName, "return")
	p.await(`document.querySelector(".code .key")`)
}

// typeInto replaces a passage of the editor's text as a user does.
func (p *pageBrowser) typeInto(old, text string) {
	p.t.Helper()
	p.await(`document.querySelector("main textarea")`)
	p.check(p.Eval(`(a => { const at = a.value.indexOf(`+quote(old)+`); a.focus(); a.setSelectionRange(at, at + `+fmt.Sprint(len(old))+`) })(document.querySelector("main textarea"))`, nil))
	p.check(p.Type(text))
}

func (p *pageBrowser) edits(b *box) {
	p.t.Helper()
	p.inFiles("/workspace/"+hostileName, "return")
	p.press("Edit")
	p.await(`document.querySelector("main textarea")?.selectionEnd === 0`)
	p.typeInto("42", "43")
	p.picture("files-edit")
	p.inFiles("/workspace/Makefile", "echo $@") // what is not saved is there again
	p.inFiles("/workspace/"+hostileName, "Not saved")
	p.press("Save")
	p.await(`document.querySelector(".code")?.textContent === ` + quote(strings.Replace(hostileText, "42", "43", 1)))
	if got := b.shell("cat /workspace/*.py"); got != strings.Replace(hostileText, "42", "43", 1) {
		p.t.Errorf("saved %q", got)
	}

	p.inFiles("/workspace/dos.ini", "b = 1")
	p.press("Edit")
	p.typeInto("1", "2\nc = 3")
	b.shell("printf 'other\r\n' > /workspace/dos.ini")
	p.press("Save")
	p.await(`document.querySelector("dialog[open]").innerText.includes("changed meanwhile")`)
	p.picture("files-changed")
	if got := b.shell("cat /workspace/dos.ini"); got != "other\r\n" {
		p.t.Errorf("replaced what changed meanwhile: %q", got)
	}
	p.fill(nil)
	p.await(`document.querySelector(".code")?.textContent.includes("c = 3")`)
	if got := b.shell("cat /workspace/dos.ini"); got != "[a]\r\nb = 2\r\nc = 3\r\n" {
		p.t.Errorf("saved %q", got)
	}

	p.inFiles("/workspace/Makefile", "echo $@")
	p.press("Edit")
	p.await(`document.querySelector("main textarea")`)
	p.check(p.Eval(`[...document.querySelectorAll("main button")].find(b => b.textContent === "Cancel").click(); location.hash = "#/sandbox/edit/files/at/%2Fworkspace"`, nil))
	p.inFiles("/workspace/Makefile", "echo $@")
	var failed bool
	if p.check(p.Eval(`document.querySelector(".note.bad") !== null`, &failed)); failed {
		p.t.Error("a view that is left meanwhile is a failure")
	}
	p.press("Edit")
	p.typeInto("all:\n", "all: clean\n")
	p.check(p.Press("Tab")) // a tab, and not the focus
	b.shell("rm /workspace/Makefile")
	p.press("Save")
	p.await(`document.querySelector("dialog[open]").innerText.includes("deleted meanwhile")`)
	p.fill(nil)
	p.await(`document.querySelector(".code")?.textContent === "all: clean\n\t\techo $@\n"`)
	for _, name := range []string{"mixed.txt", "latin.txt"} { // a text field would change their bytes
		p.inFiles("/workspace/"+name, "Download")
		var can bool
		if p.check(p.Eval(`[...document.querySelectorAll("main button")].some(b => b.textContent === "Edit")`, &can)); can {
			p.t.Errorf("%s can be edited", name)
		}
	}
}

// makes makes a directory and a file in it.
func (p *pageBrowser) makes(b *box) {
	p.t.Helper()
	p.inFiles("/workspace", "Choose a file")
	p.press("New directory")
	p.fill(map[string]string{"name": "<b>new"})
	p.await(`document.querySelector(".crumbs").textContent === "/workspace/<b>new"`)
	p.await(`document.getElementById("main").innerText.includes("This directory is empty")`)
	p.press("New file")
	p.fill(map[string]string{"name": "a.sh"})
	p.await(`[...document.querySelectorAll("main button")].some(b => b.textContent === "Edit") && document.querySelector(".listing [aria-current]")?.textContent.includes("a.sh")`)
	p.press("New file")
	p.fill(map[string]string{"name": "a.sh"})
	p.await(`document.querySelector("dialog[open] .fault").textContent.includes("exists already")`)
	p.check(p.Eval(`document.querySelector("dialog[open]").close()`, nil))
	if got := b.shell("cd /workspace/*new*; ls; wc -c < a.sh"); got != "a.sh\n0\n" {
		p.t.Errorf("made %q", got)
	}
}

// search fills the form of the search.
func (p *pageBrowser) search(pattern string, exact bool) {
	p.t.Helper()
	p.check(p.Eval(fmt.Sprintf(`(f => { f.querySelector("[name=pattern]").value = %s; f.querySelector("[name=case]").checked = %t; f.requestSubmit() })(document.querySelector("form.search"))`, quote(pattern), exact), nil))
}

func (p *pageBrowser) searches() {
	p.t.Helper()
	p.inFiles("/workspace", "Choose a file")
	p.search(`RETURN '</`, false)
	p.await(`document.querySelector(".found .listing a")?.textContent.includes("</textarea><script>")`)
	p.picture("files-search")
	p.check(p.Eval(`document.querySelector(".found .listing a").click()`, nil))
	p.await(`document.querySelector(".source .mark") && document.querySelector(".code .key")`)
	p.await(`(([mark, code]) => Math.abs(mark.top - code.top - 0.7 * 15 - 1.5 * 0.84 * 15) < 3)([...document.querySelectorAll(".source .mark, .source .code")].sort(e => e.className === "mark" ? -1 : 1).map(e => e.getBoundingClientRect()))`)
	p.picture("files-found")
	p.inFiles("/workspace", "Choose a file")
	p.search(`RETURN`, true)
	p.await(`document.getElementById("main").innerText.includes("No line matches.")`)
	p.search(`[`, true)
	p.await(`document.querySelector("main .fault:not(:empty)")?.textContent.includes("missing")`)
}

// drop drops files and directories of this machine on an element, below one that shows it.
func (p *pageBrowser) drop(on, shows string, paths ...string) {
	p.t.Helper()
	var at struct{ X, Y float64 }
	p.check(p.Eval(`(r => ({x: r.x + 40, y: r.y + 20}))(document.querySelector(`+quote(on)+`).getBoundingClientRect())`, &at))
	for _, kind := range []string{"dragEnter", "dragOver", "drop"} {
		p.check(p.Call("Input.dispatchDragEvent", map[string]any{"type": kind, "x": at.X, "y": at.Y, "data": map[string]any{"items": []string{}, "files": paths, "dragOperationsMask": 1}}, nil))
		if kind == "dragOver" {
			p.await(`document.querySelector(` + quote(shows+".drop") + `)`)
			p.picture("drop" + shows)
		}
	}
}

// TestPageUpload drops files and a directory on the view of a sandbox of a namespace. A name that is there is asked for, and
// what passes the namespace's ceiling has the reason.
func TestPageUpload(t *testing.T) {
	b := newBox(t)
	s := b.serveAPI("--max-disk", "16m")
	token := strings.TrimSpace(b.demesne("serve", "token", "add", "--name", "guest", "team").stdout)
	s.key = token
	p := b.browse(s, nil)
	p.check(p.Eval(`import("/page/api.js").then(m => m.act("POST", "/v1/sandboxes", {name: "edit"}))`, nil))
	p.inFiles("/workspace", "This directory is empty")
	dir := b.TempDir()
	for name, size := range map[string]int{"one.txt": 3, "<i>two.bin": 2 << 20, "tree/a/deep.txt": 5, "tree/top.txt": 4, "large.bin": 20 << 20} {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(strings.Repeat("x", size)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.drop(".listing", ".files", dir+"/one.txt", dir+"/<i>two.bin", dir+"/tree")
	p.await(`document.querySelector(".note")?.textContent === "Uploaded 4 files"`)
	p.await(`["tree/", "one.txt", "<i>two.bin"].every(n => [...document.querySelectorAll(".listing .name")].some(e => e.textContent === n))`)
	var sizes string
	p.check(p.Eval(`import("/page/api.js").then(m => m.act("POST", "/v1/sandboxes/edit/exec", {command: "find . -type f -printf '%P %s\n' | sort"})).then(r => r.stdout.text)`, &sizes))
	if want := "<i>two.bin 2097152\none.txt 3\ntree/a/deep.txt 5\ntree/top.txt 4\n"; sizes != want {
		t.Errorf("uploaded %q", sizes)
	}
	if err := os.WriteFile(dir+"/one.txt", []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.drop(".listing", ".files", dir+"/one.txt")
	p.await(`document.querySelector("dialog[open]").innerText.includes("Replace “one.txt”?")`)
	p.fill(nil)
	p.await(`[...document.querySelectorAll(".listing a")].some(a => a.textContent === "one.txt5 B")`)
	p.drop(".listing", ".files", dir+"/large.bin")
	p.await(`[...document.querySelectorAll(".note.bad")].some(n => n.textContent === "20 MiB are more than the sandbox’s disk limit of 16 MiB.")`)
	if err := os.Rename(dir+"/tree", dir+"/other"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/tree", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.drop(".listing", ".files", dir+"/tree") // a file in place of a directory
	p.fill(nil)
	p.await(`document.querySelector(".uploads .why")?.textContent.includes("is a directory")`)
	p.picture("files-upload")
	p.press("Dismiss")
	p.await(`!document.querySelector(".uploads li")`)
	p.quiet("400 (Bad Request)")
	p.check(p.Eval(`import("/page/api.js").then(m => m.act("DELETE", "/v1/sandboxes/edit"))`, nil))
}
