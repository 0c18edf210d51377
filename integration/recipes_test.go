package integration

import (
	"archive/tar"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"demesne/integration/fixture"
)

// recipes reports whether `make recipes` runs the tests.
func recipes() bool { return os.Getenv("DEMESNE_RECIPES") != "" }

// heavy skips a test that downloads hundreds of megabytes, unless `make recipes` runs it.
func heavy(t *testing.T) {
	t.Helper()
	if !recipes() {
		t.Skip("downloads much: make recipes")
	}
}

// TestRecipeDebian makes a Debian system only from a package mirror, with subordinate ids as root and with one id as an
// ordinary user: lazily, once for two commands at a time, and such that apt and users work in it.
func TestRecipeDebian(t *testing.T) {
	g := newGallery(t)
	if os.Getuid() != 0 {
		g.oneID(t)
	}
	g.told(t, "demesne/debian", "run", "--image", "demesne/debian", "--pull", "never", "true")
	if out := g.ok("images", "--all"); !strings.Contains(out, "demesne/debian") || !strings.Contains(out, "not built") {
		t.Errorf("images --all:\n%s", out)
	}
	var both [2]result
	var wg sync.WaitGroup
	for i := range both {
		wg.Go(func() { both[i] = g.do("run", "--image", "demesne/debian", "--", "cat", "/etc/debian_version") })
	}
	wg.Wait()
	said := both[0].stderr + both[1].stderr
	if both[0].code != 0 || both[0].stdout != both[1].stdout || !strings.HasPrefix(both[0].stdout, "13.") {
		t.Fatalf("two at once: %+v", both)
	}
	if strings.Count(said, "building demesne/debian, once: about 85.0 MiB") != 1 || strings.Count(said, "waiting") != 1 || strings.Count(said, "DONE") != 1 {
		t.Errorf("progress:\n%s", said)
	}
	if r := g.do("run", "--image", "demesne/debian", "true"); r.code != 0 || r.stderr != "" {
		t.Errorf("once more: %+v", r)
	}
	if out := g.inside("demesne/debian", "find /var/lib/apt/lists /var/cache/apt /run -type f; stat -c %U /etc/shadow; stat -c %a /usr/bin /home /etc/apt | uniq; dpkg --audit"); out != "root\n755\n" {
		t.Errorf("inside: %q", out)
	}
	g.wholeSystem(t)
	dir := g.mkdir("ctx")
	g.file("ctx/Containerfile", "FROM demesne/debian\nRUN apt-get update && apt-get install -y -q tree && rm -rf /var/lib/apt/lists/*\nRUN useradd -m someone && mkdir /theirs && chown someone /theirs\n", 0o644)
	if r := g.do("build", "-t", "local/tree", dir); r.code != 0 {
		t.Fatalf("build: %+v", r)
	}
	if out := g.inside("local/tree", "tree --version | cut -d' ' -f1; stat -c %U /theirs"); out != "tree\nsomeone\n" && (os.Getuid() == 0 || out != "tree\nroot\n") {
		t.Errorf("tree: %q", out)
	}
}

// wholeSystem checks that the image has the directories that debootstrap makes, also those that every sandbox has anyway:
// another engine makes none of them.
func (g *gallery) wholeSystem(t *testing.T) {
	want := map[string]string{
		"dev/": "drwxr-xr-x", "proc/": "dr-xr-xr-x", "sys/": "dr-xr-xr-x", "root/": "drwx------", "run/": "drwxr-xr-x", "run/lock/": "dtrwxrwxrwx",
		"tmp/": "dtrwxrwxrwx", "var/tmp/": "dtrwxrwxrwx", "home/": "drwxr-xr-x", "mnt/": "drwxr-xr-x", "opt/": "drwxr-xr-x", "srv/": "drwxr-xr-x",
		"boot/": "drwxr-xr-x", "media/": "drwxr-xr-x", "etc/": "drwxr-xr-x", "usr/sbin/nologin": "-rwxr-xr-x",
	}
	for tr := tar.NewReader(strings.NewReader(g.ok("export", "demesne/debian"))); ; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if mode, ok := want[h.Name]; ok && h.FileInfo().Mode().String() == mode && h.Uid == 0 && h.Gid == 0 {
			delete(want, h.Name)
		}
		if h.Name == "workspace/" || h.Name == "in/" || h.Name == "out/" {
			t.Errorf("the image has %s", h.Name)
		}
	}
	if len(want) > 0 {
		t.Errorf("the image lacks %v", want)
	}
}

// TestRecipeNames checks the names of recipes where names of images are used, without building one.
func TestRecipeNames(t *testing.T) {
	g := newGallery(t)
	g.told(t, `no recipe "nothing"`, "run", "--image", "demesne/nothing", "true")
	g.told(t, "makes another image now", "run", "--image", "demesne/debian:0123456789ab", "true")
	g.told(t, "has no digest", "pull", "demesne/debian@sha256:"+strings.Repeat("0", 64))
	for _, args := range [][]string{{"build", "--recipe", "nothing"}, {"build", "--recipe", "browser", g.dir}, {"build", "-t", "demesne/mine", g.dir}} {
		if r := g.do(args...); r.code != 2 || !strings.Contains(r.stderr, "demesne: build: ") {
			t.Errorf("%q: %+v", args, r)
		}
	}
	var all []struct {
		Names []string `json:"names"`
		Built int64    `json:"built_size"`
	}
	if err := json.Unmarshal([]byte(g.ok("images", "--all", "--json")), &all); err != nil {
		t.Fatal(err)
	}
	sizes := map[string]int64{}
	for _, i := range all {
		name, _, _ := strings.Cut(i.Names[0], ":")
		sizes[name] = i.Built
	}
	if sizes["docker.io/demesne/browser"] < 500<<20 || sizes["docker.io/library/debian"] != 0 {
		t.Errorf("sizes: %v", sizes)
	}
}

// render draws a page with Debian's chromium by Playwright, found by its default.
const render = `
const { chromium } = require("playwright");
if (require("playwright-core").chromium.executablePath() !== chromium.executablePath()) throw Error("two Playwrights");
(async () => {
  const browser = await chromium.launch();
  const page = await browser.newPage({ viewport: { width: 320, height: 200 } });
  await page.setContent("<body style='background:#f00'><h1>Hello</h1>");
  await page.screenshot({ path: "/out/page.png" });
  console.log(await page.title() || "untitled");
  await browser.close();
})();`

// TestRecipeBrowser renders pages and talks to Playwright's MCP server, both in sandboxes without a network.
func TestRecipeBrowser(t *testing.T) {
	heavy(t)
	g := newGallery(t)
	if os.Getuid() != 0 {
		g.oneID(t)
	}
	g.kept(browsers...)
	out := g.mkdir("shots")
	script := g.file("render.js", render, 0o644)
	if got := g.ok("run", "--image", "browser", "--in", script, "--out", out, "--", "node", "/in/render.js"); got != "untitled\n" {
		t.Errorf("Playwright: %q", got)
	}
	page := g.file("page.html", "<h1>Hello</h1>", 0o644)
	r := g.do("run", "--image", "browser", "--in", page, "--out", out, "--", "chromium", "--headless", "--screenshot=/out/alone.png", "--window-size=320,200", "file:///in/page.html")
	if r.code != 0 || busErrors(r.stderr) != "" {
		t.Errorf("a screenshot: %+v", r)
	}
	for _, name := range []string{"page.png", "alone.png"} {
		if b, err := os.ReadFile(filepath.Join(out, name)); err != nil || !strings.HasPrefix(string(b), "\x89PNG") || len(b) < 500 {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
	server := g.file("serve.sh", `mkfifo /tmp/up; node -e 'require("http").createServer((q, r) => { r.setHeader("content-type", "text/html"); r.end(
		"<title>named</title><p>wait<script>setTimeout(() => document.body.innerHTML = \"<h1 id=done>made</h1>\")</script>") }).listen(8000, () => console.log("up"))' > /tmp/up &
		read -r up < /tmp/up
		/in/demesne-frontend webpage '{"url":"http://127.0.0.1:8000/","render":true,"wait_for":"#done","screenshot":true}'`, 0o644)
	if got := g.ok("run", "--image", "browser", "--in", bin+"/demesne-frontend", "--in", server, "--", "sh", "/in/serve.sh"); !strings.Contains(got, `"title":"named","status":200,"markdown":"# made","truncated":false,"screenshot":"/9j/`) {
		t.Errorf("browser_fetch: %s", short(got))
	}
	g.recipeTools(t)
	asked := g.file("asked", strings.Join([]string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"browser_navigate","arguments":{"url":"data:text/html,<title>Named</title><h1>Hello"}}}`,
		`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"browser_take_screenshot","arguments":{}}}`,
	}, "\n")+"\n", 0o644)
	// The server ends with its stdin, and would not answer all.
	answers := g.ok("run", "--image", "browser", "--in", asked, "--", "sh", "-c",
		`mkfifo /tmp/in; playwright-mcp < /tmp/in > /tmp/answers & exec 3> /tmp/in
		while read -r line; do echo "$line" >&3; sleep 1; done < /in/asked
		for i in $(seq 60); do grep -q '"id":3' /tmp/answers && break; sleep 1; done; cat /tmp/answers`)
	for _, part := range []string{`"protocolVersion"`, "Page Title: Named", `"type":"image"`} {
		if !strings.Contains(answers, part) {
			t.Errorf("playwright-mcp: no %s in\n%s", part, short(answers))
		}
	}
}

// hostilePages is a server of pages that do what a browser should survive.
const hostilePages = `const pages = {
  "/": "<title>Front</title><button id=b onclick='this.textContent=1+(+this.textContent)'>0</button>",
  "/file": "<title>F</title><iframe src='file:///etc/passwd'></iframe><script>location='file:///etc/passwd'</script>",
  "/chrome": "<title>C</title><script>location='chrome://settings'</script>",
  "/popups": "<title>P</title><script>for(let i=0;i<9;i++)open('/?'+i)</script>",
  "/flood": "<title>W</title><script>for(let i=0;i<200;i++)open('/?'+i)</script>",
  "/alert": "<title>A</title><script>for(;;)alert(1)</script>",
  "/hog": "<title>H</title><script>setTimeout(()=>{const a=[];for(;;)a.push(new Uint8Array(1<<24).fill(1))})</script>",
  "/fill": "<title>L</title><script>for(let i=0;i<9;i++)open('/big?'+i)</script>",
  "/unload": "<title>U</title><button id=b>x</button><script>onbeforeunload=e=>{e.preventDefault();e.returnValue='no'}</script>",
};
require("http").createServer((q, r) => {
  console.log("page " + q.url);
  if (!q.url.startsWith("/big")) return r.writeHead(200, {"content-type": "text/html"}).end(pages[q.url.split("?")[0]]);
  r.writeHead(200, {"content-type": "application/octet-stream", "content-disposition": "attachment; filename=../../big"});
  const block = Buffer.alloc(1 << 20);
  let n = 0;
  const more = () => { while (n++ < 10240) if (!r.write(block)) return r.once("drain", more); r.end(); };
  more();
}).listen(8000, "127.0.0.1", () => console.log("listens"));`

// recipeTools drives real browsers by MCP's tool set: ten at once, and one through hostile pages.
func (g *gallery) recipeTools(t *testing.T) {
	g.extra = append(g.extra, "DEMESNE_TOOLS=browser")
	c := g.mcp()
	ok := func(tool string, a args, has string) {
		t.Helper()
		if r := c.call(tool, a); r.IsError || r.Code != 0 || !strings.Contains(r.Text+string(r.Result), has) {
			t.Errorf("%s %v: %+v, want %q", tool, a, r, has)
		}
	}
	each := func(do func(session string)) {
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() { do("s" + strconv.Itoa(i)) })
		}
		all.Wait()
	}
	each(func(s string) {
		ok("browser_navigate", args{"url": "data:text/html,<title>T" + s + "</title><h1>Hello", "session": s}, "Page Title: T"+s)
	})
	for _, one := range c.call("sandbox_list", args{}).Fields["sandboxes"].([]any) {
		id := one.(map[string]any)["sandbox_id"].(string)
		t.Logf("memory of the browser in %s: %s", id, c.must("sandbox_exec", args{"sandbox_id": id, "command": "cat /proc/[0-9]*/smaps_rollup | awk '/^Pss:/ { sum += $2 } END { print int(sum / 1024), \"MiB\" }'"}).field("stdout"))
	}
	each(func(s string) { ok("browser_close", args{"session": s}, "closed") })
	c.hostile()
	at := func(path string) args { return args{"url": "http://localhost:8000" + path, "session": "hostile"} }
	element := args{"selector": "#b", "session": "hostile"}
	ok("browser_navigate", at("/"), "Page Title: Front")
	ok("browser_click", element, "done")
	ok("browser_snapshot", args{"session": "hostile"}, `button "1"`)
	ok("browser_screenshot", args{"session": "hostile"}, `"type":"image"`)
	for _, path := range []string{"/file", "/chrome"} {
		ok("browser_navigate", at(path), "")
		ok("browser_get_html", args{"session": "hostile"}, "<title>"+strings.ToUpper(path[1:2]))
	}
	ok("browser_navigate", at("/big"), "Downloading")
	ok("browser_navigate", at("/unload"), "")
	ok("browser_click", element, "")
	ok("browser_navigate", at("/"), "beforeunload")
	ok("browser_dialog", args{"accept": true, "session": "hostile"}, "")
	ok("browser_navigate", at("/popups"), "")
	eventually(t, "the popups to be tabs", func() bool {
		return strings.Contains(c.call("browser_tabs", args{"action": "list", "session": "hostile"}).Text, "- 9: ")
	})
	ok("browser_close", args{"session": "hostile"}, "closed")
	ok("browser_navigate", at("/"), "Page Title: Front")
	if r := c.call("browser_navigate", args{"url": "http://denied.test/", "session": "hostile"}); !r.IsError || !strings.Contains(r.Text, "net::ERR_") {
		t.Errorf("a name that is not allowed: %+v", r)
	}
	for _, left := range c.call("sandbox_list", args{}).Fields["sandboxes"].([]any) {
		ok("sandbox_destroy", args{"sandbox_id": left.(map[string]any)["sandbox_id"]}, "destroyed")
	}
}

// busErrors returns the lines about D-Bus, but for those about the battery, which come after 25 seconds on a slow machine.
func busErrors(stderr string) (lines string) {
	for line := range strings.Lines(stderr) {
		if strings.Contains(line, "dbus") && !strings.Contains(line, "UPower") {
			lines += line
		}
	}
	return lines
}

// TestBrowserBus takes screenshots by this machine's chromium with the settings of the image browser. Chromium reports no
// error of D-Bus, also for a second browser, and still reports errors of pages.
func TestBrowserBus(t *testing.T) {
	program(t, "chromium")
	program(t, "dbus-daemon")
	b := newBox(t)
	files, err := filepath.Abs("../images/recipes/browser")
	if err != nil {
		t.Fatal(err)
	}
	script := `mkdir -p /etc/dbus-1/demesne /etc/chromium.d
cp /in/browser/chromium.conf /etc/chromium.d/demesne; cp /in/browser/bus.conf /etc/dbus-1/demesne.conf; cp /in/browser/upower.service /etc/dbus-1/demesne
shot() { chromium --headless --screenshot=/out/"$1".png --window-size=320,200 "$2"; }
shot a 'data:text/html,<h1>a' & shot b 'data:text/html,<h1>b'; wait
shot c file:///none.html`
	out := b.mkdir("shots")
	r := b.demesne("run", "--in", files, "--out", out, "-c", script)
	if r.code != 0 || busErrors(r.stderr) != "" || !strings.Contains(r.stderr, "ERR_FILE_NOT_FOUND") {
		t.Errorf("%+v", r)
	}
	for _, name := range []string{"a.png", "b.png"} {
		if text, err := os.ReadFile(filepath.Join(out, name)); err != nil || !strings.HasPrefix(string(text), "\x89PNG") {
			t.Errorf("%s: %d bytes, %v", name, len(text), err)
		}
	}
}

// TestRecipeInterrupted checks that an agent run that is interrupted or killed while it builds the image of its agent ends
// that build, and that nothing remains.
func TestRecipeInterrupted(t *testing.T) {
	g := newGallery(t)
	m := &fixture.Model{}
	url, stop := m.Start()
	t.Cleanup(stop)
	g.hostWithoutAgents(url)
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		cmd := g.cli("agent", "run", "--model", "sonnet", "--out", g.mkdir(signal.String()), "make it")
		text := heard(cmd)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the build to start", func() bool {
			return strings.Contains(text(), "building demesne/debian") && g.ok("ls", "-q", "--all") != ""
		})
		cmd.Process.Signal(signal)
		began := time.Now()
		cmd.Wait()
		eventually(t, "every sandbox to be gone", func() bool { return g.ok("ls", "-q", "--all") == "" })
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%s: the build went on for %s", signal, took)
		}
		if code := cmd.ProcessState.ExitCode(); signal == syscall.SIGINT && code != 130 {
			t.Errorf("exit %d\n%s", code, text())
		}
		eventually(t, "every process to be gone", func() bool { return len(descendants()) == 0 })
	}
}
