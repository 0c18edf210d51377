package integration

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// recipeStore is an image store that later tests of the user find: to make the images takes minutes.
func recipeStore() string {
	return cmp.Or(os.Getenv("DEMESNE_RECIPE_STORE"), fmt.Sprintf("/var/tmp/demesne-recipes-%d", os.Getuid()))
}

// kept puts images of recipes into that store, and uses it.
func (g *gallery) kept(images ...string) {
	g.Helper()
	own := g.store
	g.Cleanup(func() { g.store = own })
	g.store = recipeStore()
	for _, name := range images { // each within the time of one command
		g.ok("pull", name)
	}
}

// browsers are the images up to the recipe browser.
var browsers = []string{"demesne/debian", "demesne/node", "browser"}

// TestRecipeBrowserOutside connects Playwright and Puppeteer, unchanged, to a browser in a sandbox. They find QUIC, ECH and DNS over
// HTTPS off.
func TestRecipeBrowserOutside(t *testing.T) {
	heavy(t)
	from := "/var/tmp/demesne-browser-clients"
	need(t, exists(from+"/installed"), "integration/clients/browser/install.sh")
	b := newGallery(t)
	b.kept(browsers...)
	port := freePort(t)
	sock := b.dir + "/debugger"
	cmd := b.command("demesne", "run", "--image", "browser", "--publish", port+":9222", "--publish", "unix:"+sock+":9222", "--", "chromium", "--headless", "--remote-debugging-port=9222")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
	}()
	local := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", sock) }}}
	for _, c := range []*http.Client{http.DefaultClient, local} {
		eventually(t, "the browser to listen", func() bool {
			r, err := c.Get("http://127.0.0.1:" + port + "/json/version")
			if err == nil {
				r.Body.Close()
			}
			return err == nil && r.StatusCode == http.StatusOK
		})
	}
	dir := b.mkdir("clients")
	text, err := os.ReadFile("clients/browser/outside.mjs")
	if err == nil {
		err = os.Symlink(from+"/node_modules", dir+"/node_modules")
	}
	if err != nil {
		t.Fatal(err)
	}
	client := exec.Command("node", b.file("clients/outside.mjs", string(text), 0o644), "http://127.0.0.1:"+port)
	const want = "playwright Named1\nQuicAllowed false\nEncryptedClientHelloEnabled false\nDnsOverHttpsMode off\npuppeteer Named1\n"
	if out, err := client.CombinedOutput(); err != nil || string(out) != want {
		t.Errorf("%v: %s", err, out)
	}
}

// TestRecipeBrowserAuthority opens a page of a host whose connections demesne intercepts: Chromium knows their authority. The host
// gets the secret, and the page does not.
func TestRecipeBrowserAuthority(t *testing.T) {
	heavy(t)
	t.Setenv("DEMESNE_RECIPE_STORE", recipeStore()) // onInternet has another user id
	onInternet(t, func(n *internet) {
		n.vault()
		n.store = recipeStore() // there is no registry here: TestRecipeBrowserOutside has made the image
		flags := []string{"run", "--image", "browser", "--allow-domain", "vault.test", "--allow-domain", "other.test"}
		dump := func(more ...string) result {
			return n.demesne(append(append(flags, more...), "chromium", "--headless", "--dump-dom", "https://vault.test/page")...)
		}
		if r := dump("--secret", "TOKEN", "--secret-for", "TOKEN=vault.test:Authorization", "--"); !strings.Contains(r.stdout, "thanks for ") {
			t.Errorf("%+v", r)
		}
	})
}

// TestRecipeBrowserREST drives a browser by the HTTP API: from a page, by an element that comes late, to a picture and a PDF.
func TestRecipeBrowserREST(t *testing.T) {
	heavy(t)
	b := newGallery(t)
	b.kept(browsers...)
	api := b.serveAPI()
	api.ask(t, http.MethodPost, "/v1/sandboxes", `{"image":"browser","name":"web"}`, http.StatusCreated)
	do := func(tool, arguments, has string) {
		t.Helper()
		if got := api.ask(t, http.MethodPost, "/v1/sandboxes/web/browser/browser_"+tool, `{"arguments":`+arguments+`}`, http.StatusOK); !strings.Contains(got, has) {
			t.Errorf("%s: %s, want %q in it", tool, short(got), has)
		}
	}
	page, _ := json.Marshal(`data:text/html,<title>T</title><input id=i><button id=c onclick="document.title='clicked'">c</button><a id=d download=d.txt href=data:,saved>d</a><script>setTimeout(() => { document.body.innerHTML += "<b id=late>here</b>" }, 500)</script>`)
	do("navigate", `{"url":`+string(page)+`}`, "Page Title: T")
	do("wait", `{"selector":"#late"}`, "found")
	do("click", `{"selector":"#c"}`, "")
	do("evaluate", `{"expression":"() => document.title"}`, "clicked")
	do("click", `{"selector":"#d"}`, "")
	if got := b.ok("exec", "web", "--", "sh", "-c", "until grep -s saved /out/d.txt; do sleep 0.1; done"); got != "saved\n" {
		t.Errorf("a download in /out: %q", got)
	}
	do("type", `{"selector":"#i","text":"typed"}`, "")
	do("evaluate", `{"expression":"() => document.querySelector('#i').value"}`, "typed")
	do("evaluate", `{"expression":"() => console.log('said')"}`, "")
	do("console", `{}`, "said")
	do("tabs", `{"action":"new"}`, "1: (current)")
	do("tabs", `{"action":"close","index":1}`, "0: (current)")
	do("screenshot", `{}`, "image/png")
	do("pdf", `{}`, ".pdf")
	if got := api.ask(t, http.MethodPost, "/v1/sandboxes/web/browser/browser_wait", `{"arguments":{"selector":"#late]"}}`, http.StatusOK); !strings.Contains(got, "not a valid selector") {
		t.Errorf("a selector that is not valid: %s", short(got))
	}
	api.ask(t, http.MethodDelete, "/v1/sandboxes/web", "", http.StatusNoContent)
}

// hostile makes the sandbox of a browser, with a server of hostile pages in it. It may be called again.
func (c *mcpClient) hostile() (id string) {
	id = c.must("sandbox_create", args{"image": "browser", "key": "hostile"}).field("sandbox_id")
	c.must("sandbox_exec", args{"sandbox_id": id, "stdin": hostilePages, "command": "cat > /tmp/pages.js; rm -rf /out/* /tmp/log; kill $(cat /tmp/server); setsid node /tmp/pages.js > /tmp/log 2>&1 & echo $! > /tmp/server; until grep -q listens /tmp/log; do sleep .1; done"})
	return id
}

// TestRecipeBrowserHostile opens pages that open 200 windows, ask without end, take all memory or download without end, and
// kills a page's process. The next page opens after at most one call that fails, and the end of the browser.
func TestRecipeBrowserHostile(t *testing.T) {
	heavy(t)
	g := newGallery(t)
	g.kept(browsers...)
	g.extra = append(g.extra, "DEMESNE_TOOLS=browser")
	c := g.mcp()
	for path, asked := range map[string]string{"/": "page /", "/flood": "page /?0", "/alert": "page /alert", "/hog": "page /hog", "/fill": "page /big?0"} {
		id := c.hostile()
		r := c.call("browser_navigate", args{"url": "http://localhost:8000" + path, "session": "hostile"})
		if path == "/" {
			c.must("sandbox_exec", args{"sandbox_id": id, "command": "pkill -9 -f type=renderer"})
		}
		said := c.call("sandbox_exec", args{"sandbox_id": id, "command": "cat /tmp/log"})
		fine := func() answer {
			return c.call("browser_navigate", args{"url": "data:text/html,<title>Fine</title>", "session": "hostile"})
		}
		then := fine()
		if then.IsError || strings.Contains(then.Text, "Modal state") { // it asks without end
			c.call("browser_close", args{"session": "hostile"})
			then = fine()
		}
		t.Logf("%s: %s; then %s", path, short(r.Text), short(then.Text))
		if !strings.Contains(said.Text+string(said.Result), asked) {
			t.Errorf("%s was not asked for: %s", path, said.Text)
		}
		if !strings.Contains(then.Text, "Page Title: Fine") {
			t.Errorf("after %s: %s", path, then.Text)
		}
		c.must("sandbox_destroy", args{"sandbox_id": id})
	}
}
