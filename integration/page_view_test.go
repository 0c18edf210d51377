package integration

import (
	"encoding/json"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// TestPageOverview looks at a sandbox: what falls short comes first, the other layers are a line, with the words of a server; what
// runs and ran is beside it; graphs begin with what the server kept, and their top is the limit.
func TestPageOverview(t *testing.T) {
	b := newBox(t)
	f := &fakeAPI{planted: markup}
	p := b.browse(b.serveAPI(), f.answer)
	p.show("#/sandbox/"+fakeID, "Enforced: user-namespace, mount-namespace")
	p.await(`[...document.querySelectorAll(".layers.short .name")].map(e => e.textContent).join() === "landlock,cgroup,disk limit"`)
	p.await(`document.querySelector(".remedy").innerText.startsWith("On the server’s machine:")`)
	var shown string
	p.check(p.Eval(`document.getElementById("main").innerText`, &shown))
	for _, hidden := range []string{"ids 0-65535", "rlimits in its place", "9f2c"} { // on demand
		if strings.Contains(shown, hidden) {
			t.Errorf("the folded receipt shows %q", hidden)
		}
	}
	p.check(p.Eval(`document.querySelector("details").open = true`, nil))
	p.await(`document.getElementById("main").innerText.includes("ids 0-65535")`)
	p.check(p.Eval(`document.querySelector("details").open = false`, nil))
	p.await(`(text => ["sleep 3600", "pytest -q", "exit 1", "20 passed", "Recent decisions", "169.254.169.254"].every(w => text.includes(w)))(document.getElementById("main").innerText)`)
	p.await(`[...document.querySelectorAll(".graph .top")].map(e => e.textContent).join() === "1 GiB limit,2.00 limit,512 limit"`)
	p.await(`document.querySelector(".graph .line").getAttribute("d").split("L").length > 60 && document.querySelector(".graph .axis").textContent.includes("5 min ago")`)
	p.checkMarkup("sandbox")
	f.planted = ""
	p.show("#/jobs", "backup.sh")
	p.show("#/sandbox/"+fakeID, "Enforced")
	p.await(`document.querySelector(".graph output small") && document.getElementById("main").innerText.includes("20 passed")`)
	p.picture("overview")
}

// TestPageOutputShapes checks that an HTML output gets the height that it has, within bounds, and that columns of numbers are
// aligned at the right.
func TestPageOutputShapes(t *testing.T) {
	b := newBox(t)
	p := b.browse(b.serveAPI(), (&fakeAPI{}).answer)
	height := func(html string, want string) {
		t.Helper()
		p.output(html, false)
		p.await(`(h => ` + want + `)(document.querySelector("main iframe").getBoundingClientRect().height)`)
	}
	height(`<p style="height: 300px; margin: 0">x</p>`, `h > 300 && h < 360`)
	height(`<p>x</p>`, `h >= 48 && h < 110`)
	height(`<p style="height: 90000px">x</p>`, `h === 900`)
	height(`<body style="height: 100vh">x`, `h >= 48 && h <= 900`)
	height(`<script>parent.postMessage({height: 700}, "*")</script><p>x</p>`, `h >= 48 && h < 110`)
	p.check(p.Eval(`import("/page/show.js").then(m => { document.getElementById("main").replaceChildren(m.sheet("name,n,price,mixed\na,1,\"$1,200.50\",1\nb,-2.5e3,3 %,x\n,,,\n", ",")) })`, nil))
	p.await(`[...document.querySelectorAll("th")].map(e => e.className).join() === ",right,right,"`)
	p.await(`getComputedStyle(document.querySelector("td:nth-child(2)")).textAlign === "right"`)
	p.show("#/sandbox/"+fakeID+"/outputs", "quince")
	p.await(`document.querySelector(".output iframe")`)
	p.picture("outputs")
}

// TestPageNames checks that a run has the name that its client gave it, and that an approval of a pattern says for how long.
func TestPageNames(t *testing.T) {
	b := newBox(t)
	f := &fakeAPI{}
	var mu sync.Mutex
	var sent []string
	p := b.browse(b.serveAPI(), func(method, address, body string) (int, string, string, bool) {
		if u, err := url.Parse(address); err == nil && strings.HasSuffix(u.Path, "/approve") {
			mu.Lock()
			defer mu.Unlock()
			sent = append(sent, u.Path+" "+body)
			return 204, "text/plain", "", true
		}
		return f.answer(method, address, body)
	})
	p.show("#/runs", "pip install")
	p.await(`document.querySelector("td.main a").textContent === "ci"`)
	p.picture("runs")
	p.show("#/run/run-51f0", "quince")
	p.await(`document.querySelector("h1").textContent === "ci"`)
	p.picture("run")
	p.show("#/approvals", "git log")
	p.picture("approvals")
	for i, button := range []string{"Allow this pattern for an hour", "Allow this pattern for 2 hours", "Approve", "Allow this command for an hour", "Approve once"} {
		p.press(button)
		eventually(t, button, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(sent) > i
		})
	}
	mu.Lock()
	defer mu.Unlock()
	want := []string{`/v1/host/requests/h2/approve {"digest":"d2","for_seconds":3600}`, `/v1/host/requests/h2/approve {"digest":"d2"}`, `/v1/host/requests/h1/approve {"digest":"d1"}`,
		`/v1/host/requests/h3/approve {"digest":"d3","for_seconds":3600}`, `/v1/host/requests/h3/approve {"digest":"d3"}`}
	if string(must(json.Marshal(sent))) != string(must(json.Marshal(want))) {
		t.Errorf("sent %q", sent)
	}
}

// TestPageTerminalHeld types before the terminal's frame has its emulator. The keys reach the program once it has started, and
// act on nothing else.
func TestPageTerminalHeld(t *testing.T) {
	b := newBox(t)
	release := make(chan struct{})
	p := b.browse(b.serveAPI(), func(_, address, _ string) (int, string, string, bool) {
		if strings.HasSuffix(address, "/page/frame/terminal.html") {
			<-release
		}
		return 0, "", "", false
	})
	b.cli("create", "--name", "held")
	p.show("#/sandbox/held", "Receipt")
	p.check(p.Eval(`location.hash = "#/sandbox/held/terminal"`, nil))
	p.await(`document.activeElement.classList.contains("terminal")`)
	for _, key := range strings.Split("echo nX?gj$((6*7))", "") { // n, ?, g and j are shortcuts of the page
		p.check(p.Press(key))
	}
	p.check(p.Press("Enter"))
	var shown bool
	if p.check(p.Eval(`document.querySelector("dialog") !== null || location.hash !== "#/sandbox/held/terminal"`, &shown)); shown {
		t.Error("a key was a shortcut")
	}
	close(release)
	p.shownInTerminal("nX?gj42")
	p.check(p.Type(`printf '\033[93m%s\033[0m\n' pale-$((6*7))`)) // bright yellow, on a light ground
	p.check(p.Press("Enter"))
	p.terminalHas(`(e => e && getComputedStyle(e).color)([...document.querySelectorAll(".xterm-rows span")].find(e => e.textContent === "pale-42"))`, "rgb(")
	colour := p.EvalFrames(`(all => all && Math.max(...all.slice(0, 2).map(Number)) < 160 ? "readable" : String(all))(getComputedStyle([...document.querySelectorAll(".xterm-rows span")].find(e => e.textContent === "pale-42") ?? document.body).color.match(/\d+/g))`)
	if !strings.Contains(strings.Join(colour, " "), "readable") {
		t.Errorf("bright yellow on a light ground is %q", colour)
	}
	b.cli("rm", "held")
}
