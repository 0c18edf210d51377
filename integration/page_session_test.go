package integration

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"demesne/integration/fixture"
)

// TestPageSession does in Chromium what a person does: log in, create a sandbox, use its terminal, look at its files and
// outputs, answer a question, fork, and remove.
func TestPageSession(t *testing.T) {
	b := newBox(t)
	s := b.serveAPI()
	p := b.browse(s, nil)
	p.check(p.Eval(`[...document.querySelectorAll("button")].find(b => b.textContent === "Log out").click()`, nil))
	p.await(`document.querySelector("input[name=token]")`)
	p.picture("login")
	p.check(p.Type("wrong"))
	p.check(p.Press("Enter"))
	p.await(`document.querySelector(".fault").textContent.includes("does not accept")`)
	p.check(p.Type(s.key)) // the wrong one is selected
	p.check(p.Press("Enter"))
	p.await(`document.getElementById("main").innerText.includes("No sandboxes")`)
	p.firstView()

	p.check(p.Press("n")) // the shortcut
	p.await(`document.querySelector("dialog[open] input[name=name]")?.value === ""`)
	p.check(p.Eval(`(d => { d.querySelector("[name=name]").value = "demo"; d.querySelector("[name=ask]").checked = true; d.querySelector("button[type=submit]").click() })(document.querySelector("dialog"))`, nil))
	p.await(`location.hash.startsWith("#/sandbox/") && document.querySelectorAll(".layers .state.good").length > 3`)
	p.await(`/\d (B|KiB|MiB)/.test(document.querySelector(".graph output").textContent)`)
	var at string
	p.check(p.Eval(`location.hash`, &at))

	p.terminal(at)
	p.files(at)
	p.question(at)
	p.show("#/sandboxes", "demo")
	p.await(`document.querySelector("td.memory span")?.textContent.endsWith("iB")`) // the server has measured it
	p.lifeOf(at)
	p.quiet("401 (Unauthorized) "+s.url+"/page/login", "Content Security Policy", "/page/frame/still.html", "failed:  csp",
		"404 (Not Found) "+s.url+"/v1/sandboxes/") // a poll that began before a removal
}

// quiet checks that the browser's log has nothing but refusals that the test provoked.
func (p *pageBrowser) quiet(provoked ...string) {
	p.t.Helper()
	provoked = append(provoked, networkChanged)
	for _, s := range p.Said() {
		if !slices.ContainsFunc(provoked, func(one string) bool { return strings.Contains(s, one) }) {
			p.t.Errorf("the browser said %q", s)
		}
	}
}

// firstView checks the size of a first view, as it is without a cache.
func (p *pageBrowser) firstView() {
	p.t.Helper()
	p.check(p.Call("Network.setCacheDisabled", map[string]any{"cacheDisabled": true}, nil))
	p.check(p.Eval(`window.old = true; location.reload()`, nil))
	p.await(`!window.old && document.getElementById("main")?.innerText.includes("No sandboxes")`)
	var bytes float64
	p.check(p.Eval(`performance.getEntriesByType("resource").concat(performance.getEntriesByType("navigation")).reduce((n, e) => n + e.encodedBodySize, 0)`, &bytes))
	if bytes > 300<<10 || bytes < 10<<10 {
		p.t.Errorf("the first view has %.0f bytes", bytes)
	}
	p.check(p.Call("Network.setCacheDisabled", map[string]any{"cacheDisabled": false}, nil))
}

// shownInTerminal waits until the terminal shows a text.
func (p *pageBrowser) shownInTerminal(text string) {
	p.t.Helper()
	p.terminalHas(`document.querySelector(".xterm-rows")?.innerText ?? ""`, text)
}

// terminalHas waits until an expression in the terminal's frame has a text.
func (p *pageBrowser) terminalHas(expression, text string) {
	p.t.Helper()
	if p.frames(expression, text) {
		return
	}
	p.check(p.Screenshot(p.t.(*box).dir + "/terminal.png"))
	p.t.Fatalf("the terminal shows %q, the focus is at %q; the browser said %q", p.EvalFrames(`document.body.innerText`), p.EvalFrames(`document.activeElement.tagName + document.hasFocus()`), p.Said())
}

// cursor waits until the terminal has the focus by itself.
func (p *pageBrowser) cursor() {
	p.t.Helper()
	p.await(`!document.getElementById("terminals").hidden && document.activeElement.tagName === "IFRAME"`)
	p.terminalHas(`document.activeElement.tagName + document.hasFocus()`, "TEXTAREAtrue")
}

// terminal types into the terminal. What it prints has markup and control sequences.
func (p *pageBrowser) terminal(at string) {
	p.t.Helper()
	p.show(at+"/terminal", "Terminal")
	p.cursor()
	for _, line := range [][2]string{
		{`PS1='$ '; echo sum-$((6*7))`, "sum-42"},
		{`printf 'item,n\n"a <img src=/ran>",1\n' > /out/table.csv; printf '<h1 id=h>Report</h1><script>try { parent.ran = 1 } catch { }; fetch("/v1/sandboxes").catch(() => document.body.append("unreached"))</script><img src=http://127.0.0.1/ran>' > /out/report.html; echo written-$?`, "written-0"},
		{`echo hello > /workspace/'<img src=x onerror=ran=1>.txt'; printf '\033]0;<b>title</b>\007<script>ran=1</script>\n'; echo told-$?`, "told-0"},
		{`(exec -a '<i>daemon</i>' sleep 3141) & echo started-$(($!>0))`, "started-1"},
	} {
		p.check(p.Type(line[0]))
		p.check(p.Press("Enter"))
		p.shownInTerminal(line[1])
	}
	p.picture("session-terminal")
	p.show(at+"/processes", "<i>daemon</i> 3141")
	p.check(p.Eval(`[...document.querySelectorAll(".tabs a")].find(a => a.textContent === "Terminal").click()`, nil))
	p.cursor()
	p.check(p.Type("echo back-$((6*7))"))
	p.check(p.Press("Enter"))
	p.shownInTerminal("back-42")
	p.show(at+"/processes", "<i>daemon</i> 3141")
	p.picture("session-processes")
}

func (p *pageBrowser) files(at string) {
	p.t.Helper()
	p.show(at+"/files/at/%2Fworkspace", "<img src=x onerror=ran=1>.txt")
	p.check(p.Eval(`[...document.querySelectorAll(".listing a")].find(a => a.textContent.includes("onerror")).click()`, nil))
	p.await(`document.querySelector("pre.code")?.textContent.includes("hello")`)
	p.picture("session-files")
	p.show(at+"/files/changes", "added")
	p.show(at+"/outputs", "a <img src=/ran>")
	p.await(`document.querySelector(".output iframe")`)
	p.inFrame("Report")
	p.check(p.Eval(`[...document.querySelectorAll(".output button")].find(b => b.textContent === "Run its scripts").click()`, nil))
	p.inFrame("unreached") // its scripts run, and reach nothing
	p.picture("session-outputs")
	var ran bool
	if p.check(p.Eval(`"ran" in window || document.querySelector("main img") !== null`, &ran)); ran {
		p.t.Error("an output's markup has an effect on the page")
	}
}

// inFrame waits until frames show all texts.
func (p *pageTab) inFrame(texts ...string) {
	p.t.Helper()
	if !p.frames(`document.body.innerText`, texts...) {
		p.t.Fatalf("no frame shows one of %q", texts)
	}
}

// frames waits until an expression has these texts in the frames.
func (p *pageTab) frames(expression string, texts ...string) bool {
	return fixture.Poll(patience, func() bool {
		all := strings.Join(p.EvalFrames(expression), "\n")
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(all, text) })
	})
}

// question makes the sandbox ask for a name, and denies it.
func (p *pageBrowser) question(at string) {
	p.t.Helper()
	p.check(p.Eval(`import("/page/api.js").then(m => { m.request("POST", "/v1/sandboxes/demo/exec", {body: {argv: ["/bin/bash", "-c", "exec 3<>/dev/tcp/name.example/443"]}}).catch(() => {}) })`, nil))
	p.show(at+"/network", "name.example")
	p.picture("session-network")
	p.await(`document.querySelector("#top .count.call")`)
	p.pressIn(".ask", "Deny")
	p.await(`!document.querySelector(".ask")`)
	p.await(`document.querySelector("td .state.bad")?.textContent === "denied"`)
}

// press presses a button of the view, once it is there.
func (p *pageBrowser) press(label string) { p.t.Helper(); p.pressIn("main", label) }

// pressIn presses a button below a selector, once it is there.
func (p *pageBrowser) pressIn(selector, label string) {
	p.t.Helper()
	p.await(fmt.Sprintf(`(b => b && (b.click(), true))([...document.querySelectorAll(%s)].find(b => b.textContent === %s && !b.disabled))`, quote(selector+" button"), quote(label)))
}

// fill sets fields of a dialog and sends it.
func (p *pageBrowser) fill(values map[string]string) {
	p.t.Helper()
	p.await(`document.querySelector("dialog[open]")`)
	for name, value := range values {
		p.check(p.Eval(fmt.Sprintf(`document.querySelector("dialog [name=%s]").value = %s`, name, quote(value)), nil))
	}
	p.check(p.Eval(`document.querySelector("dialog [type=submit]").click()`, nil))
}

// lifeOf stops, starts, forks and removes the sandbox.
func (p *pageBrowser) lifeOf(at string) {
	p.t.Helper()
	p.show(at, "Receipt")
	p.press("Fork")
	p.fill(map[string]string{"name": "copy"})
	p.await(`document.querySelector("h1").textContent === "copy"`)
	p.show("#/sandbox/demo", "Receipt")
	p.press("Stop")
	p.await(`document.querySelector(".head .state").textContent === "stopped"`)
	p.press("Start")
	p.await(`document.querySelector(".head .state").textContent === "running"`)
	for _, name := range []string{"copy", "demo"} {
		p.show("#/sandbox/"+name, "Receipt")
		p.press("Remove")
		p.fill(nil)
		p.await(`location.hash === "#/sandboxes"`)
	}
	p.await(`document.getElementById("main").innerText.includes("No sandboxes")`)
}

// TestPageWork looks at a run with its timeline and outputs, and at a job.
func TestPageWork(t *testing.T) {
	program(t, "chromium")
	b := newBox(t)
	b.keepsJobs()
	s := b.serveAPI()
	c := runsClient{t: t, s: s}
	run := c.run("page", nil, inShell(`printf '<b>%s</b>\n' printed; printf 'item,n\n<i>pear</i>,2\n' > /artifacts/table.csv`), inShell("echo second; exit 3"))
	job := c.get("POST", "/v1/jobs", `{"command":"echo '<u>done</u>'"}`, 201)["id"].(string)
	p := b.browse(s, nil)
	p.show("#/runs", "printf")
	p.show("#/run/"+run["run_id"].(string), "<i>pear</i>")
	p.await(`document.querySelectorAll(".waterfall rect").length === 2 && document.querySelector(".waterfall rect.bad")`)
	p.await(`document.querySelector(".timeline").textContent.includes("run failed")`)
	p.picture("work-run")
	p.show("#/jobs", "echo")
	p.show("#/job/"+job, "<u>done</u>")
	p.picture("work-job")
	b.demesne("rm", run["sandbox_container_id"].(string))
}

// TestPageLogin checks that the cookie of a login is refused alone: a browser sends it to every port of the host.
func TestPageLogin(t *testing.T) {
	b := newBox(t)
	s := b.serveAPI("--http", "127.0.0.1:"+freePort(t)) // for the next server too
	p := b.browse(s, nil)
	var cookies struct {
		Cookies []struct {
			Name, Value, SameSite string
			HTTPOnly              bool
		}
	}
	p.check(p.Call("Network.getCookies", nil, &cookies))
	if len(cookies.Cookies) != 1 || !cookies.Cookies[0].HTTPOnly || cookies.Cookies[0].SameSite != "Strict" || strings.Contains(cookies.Cookies[0].Value, s.key) {
		t.Fatalf("%+v", cookies)
	}
	var status []int
	p.check(p.Eval(`Promise.all([fetch("/v1/sandboxes"), fetch("/v1/sandboxes", {headers: {"Demesne-Login": localStorage.getItem("demesne-half")}})]).then(all => all.map(r => r.status))`, &status))
	if fmt.Sprint(status) != "[401 200]" {
		t.Errorf("without and with the other half: %v", status)
	}
	var stored string
	p.check(p.Eval(`location.href + JSON.stringify(localStorage) + document.cookie`, &stored))
	if strings.Contains(stored, s.key) {
		t.Error("the page keeps the token")
	}
	at := strings.TrimPrefix(s.url, "http://")
	s.stop(syscall.SIGKILL)
	p.await(`document.getElementById("main").innerText.includes("The server does not answer.")`)
	p.picture("login-killed")
	s = b.serveAPI("--http", at)
	p.await(`document.getElementById("main").innerText.includes("The login is over.")`) // logins end with a server
	token := strings.TrimSpace(b.demesne("serve", "token", "add", "--name", "guest", "team").stdout)
	p.check(p.Type(token))
	p.check(p.Press("Enter"))
	p.await(`document.getElementById("main").innerText.includes("No sandboxes")`)
	if r := b.demesne("serve", "token", "rm", "guest"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	p.await(`document.getElementById("main").innerText.includes("The login is over.")`)
	p.picture("login-over")
	out := b.demesne("serve", "--page", "--http", "127.0.0.1:7999")
	if want := "http://127.0.0.1:7999/page/#token=" + s.key + "\n"; out.stdout != want {
		t.Errorf("%q", out.stdout)
	}
}

// TestPageLoginAgain checks that the late answer to a request of a login that is over does not end the next login.
func TestPageLoginAgain(t *testing.T) {
	b := newBox(t)
	release := make(chan struct{})
	var late atomic.Bool
	s := b.serveAPI()
	p := b.browse(s, func(_, address, _ string) (int, string, string, bool) {
		if strings.HasSuffix(address, "/v1/server") && !late.Swap(true) {
			<-release
			return 401, "application/json", "{}", true
		}
		return 0, "", "", false
	})
	p.check(p.Eval(`import("/page/api.js").then(m => { m.described().catch(() => 0).then(() => { window.answered = true }) })`, nil))
	p.pressIn("body", "Log out")
	p.await(`document.querySelector("input[name=token]")`)
	p.check(p.Type(s.key))
	p.check(p.Press("Enter"))
	p.await(`document.getElementById("main").innerText.includes("No sandboxes")`)
	close(release)
	p.await(`window.answered`)
	var over bool
	if p.check(p.Eval(`document.querySelector("input[name=token]") !== null`, &over)); over {
		t.Error("the next login is over")
	}
	p.quiet()
}
