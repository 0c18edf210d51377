package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"demesne/integration/fixture"
)

// send sends a request as the page does, without waiting for its answer, which it keeps as window.sent.
func (p *pageBrowser) send(path string, body any) {
	p.t.Helper()
	p.check(p.Eval(fmt.Sprintf(`window.sent = ""; import("/page/api.js").then(m => m.request("POST", %s, {body: %s})).then(r => r.text()).then(t => { window.sent = t }, e => { window.sent = e.message }); ""`,
		quote(path), must(json.Marshal(body))), nil))
}

// TestPageClick presses the buttons of a sandbox, with a server and sandboxes that are real: publish, pause, snapshot, start
// from it, limits, a question whose request passes once it is allowed, and commands of the host.
func TestPageClick(t *testing.T) {
	onInternet(t, func(n *internet) {
		program(n, "curl")
		n.keepsJobs()
		api := n.serveAPI("--host-policy", n.hostPolicy(""))
		p := n.browse(api, nil)
		p.press("New sandbox")
		p.fill(map[string]string{"name": "no/name"})
		p.await(`document.querySelector("dialog[open] .fault").textContent.includes("name")`) // the form stays
		p.check(p.Eval(`document.querySelector("dialog [name=ask]").click()`, nil))
		p.fill(map[string]string{"name": "web", "memory": "512"})
		p.await(`document.querySelector("h1").textContent === "web"`)
		p.ports()
		p.states()
		p.allow()
		p.host(n.browse(api, nil))
		p.await(`document.getElementById("main").innerText.includes("Nothing waits")`)
		p.quiet("409 (Conflict)", "422 (Unprocessable Entity)", "400 (Bad Request)")
		n.demesne("rm", "web", "shot", "again")
	})
}

// ports publishes a server of the sandbox, opens it in a tab, and ends that.
func (p *pageBrowser) ports() {
	p.t.Helper()
	p.send("/v1/sandboxes/web/exec", args{"command": "echo '<title>published</title>' > index.html; setsid python3 -m http.server 8000 --bind 127.0.0.1 >/dev/null 2>&1 & " +
		`until python3 -c 'import socket; socket.create_connection(("127.0.0.1", 8000))' 2>/dev/null; do sleep 0.1; done`})
	p.press("Publish")
	p.fill(map[string]string{"to": "8000"})
	p.await(`window.sent && document.querySelector("main td a.mono")`)
	var at string
	p.check(p.Eval(`document.querySelector("main td a.mono").textContent`, &at))
	p.picture("click-ports")
	p.check(p.Eval(`document.querySelector("main td a.mono").click()`, nil))
	var tabs struct {
		TargetInfos []struct{ Title, URL string }
	}
	if !fixture.Poll(patience, func() bool {
		p.check(p.Call("Target.getTargets", nil, &tabs))
		return strings.Contains(fmt.Sprint(tabs), "{published http://"+at+"/}")
	}) {
		p.t.Fatalf("no tab has the port: %+v", tabs)
	}
	p.check(p.Call("Page.bringToFront", nil, nil))
	p.press("Close")
	p.await(`document.getElementById("main").innerText.includes("no program on this machine")`)
	if _, err := http.Get("http://" + at); err == nil {
		p.t.Error("the closed port answers")
	}
}

// states changes the sandbox's limits and state, and starts another one from a snapshot.
func (p *pageBrowser) states() {
	p.t.Helper()
	p.press("Change limits")
	p.fill(map[string]string{"memory": "256"})
	p.await(`[...document.querySelectorAll(".graph output")].some(o => o.textContent.endsWith("of 256 MiB"))`)
	p.press("Pause")
	p.await(`document.querySelector(".head .state").textContent === "paused"`)
	p.picture("click-paused")
	p.press("Resume")
	p.await(`document.querySelector(".head .state").textContent === "running"`)
	p.press("Snapshot")
	p.fill(map[string]string{"name": "shot"})
	p.await(`document.querySelector(".head .state").textContent === "snapshot"`)
	p.picture("click-snapshot")
	p.press("Start from it")
	p.fill(map[string]string{"name": "again"})
	p.await(`document.querySelector("h1").textContent === "again"`)
	p.show("#/sandbox/again/files/at/%2Fworkspace%2Findex.html", "/workspace/index.html")
}

// allow allows a name that a request from the sandbox waits for.
func (p *pageBrowser) allow() {
	p.t.Helper()
	p.send("/v1/sandboxes/web/exec", args{"command": "curl -sS -m 200 http://good.test/"})
	p.show("#/sandbox/web/network", "good.test")
	p.press("Allow")
	p.await(`window.sent.includes("hello from good.test")`)
	p.await(`document.querySelector("td .state.good")?.textContent === "allowed"`)
	p.picture("click-allowed")
}

// host approves a command of the host once, and for an hour, and refuses another. A second browser sees both come and go.
func (p *pageBrowser) host(other *pageBrowser) {
	p.t.Helper()
	p.show("#/approvals", "Nothing waits")
	other.show("#/approvals", "Nothing waits")
	for i, c := range [][3]string{{"Approve once", "one", "[one]"}, {"Allow this command for an hour", "one", "[one]"}, {"Refuse", "two", "refused"}} {
		p.send("/v1/host/exec", args{"argv": []string{"show", c[1]}, "reason": "<b>because</b>", "wait_seconds": 30})
		p.await(fmt.Sprintf(`document.querySelector(".ask")?.innerText.includes("show %s")`, c[1]))
		other.await(fmt.Sprintf(`document.querySelector(".ask")?.innerText.includes("show %s")`, c[1]))
		p.picture(fmt.Sprint("click-host-", i))
		p.press(c[0])
		p.await(fmt.Sprintf(`window.sent.includes(%s) && !document.querySelector(".ask")`, quote(c[2])))
		other.await(`!document.querySelector(".ask") && document.getElementById("main").innerText.includes("Nothing waits")`)
	}
	p.send("/v1/host/exec", args{"argv": []string{"show", "one"}}) // for an hour, without a question
	p.await(`window.sent.includes("[one]")`)
	other.quiet()
}

// TestPageAgent looks at an agent with its steps and its cost.
func TestPageAgent(t *testing.T) {
	b, _ := newAgentBox(t, func(r fixture.ModelRequest) fixture.Answer {
		return fixture.Steps(shell("echo made > /out/made.txt"), fixture.Answer{Text: "The answer."})(r)
	})
	b.keepsJobs()
	p := b.browse(b.serveAPI(), nil)
	p.show("#/agents", "No agents")
	p.send("/v1/agents", args{"prompt": "Make a file."})
	p.await(`window.sent`)
	p.await(`document.querySelector("tbody .state")?.textContent === "succeeded" && /\$\d+\.\d*[1-9]/.test(document.querySelector("tbody tr").textContent)`)
	p.picture("click-agents")
	p.check(p.Eval(`document.querySelector("td.main a").click()`, nil))
	p.await(`document.querySelector(".timeline")?.innerText.includes("echo made") && document.getElementById("main").innerText.includes("The answer.")`)
	p.await(`document.querySelector("td.main") && document.querySelector(".sub").textContent.includes("$")`)
	p.picture("click-agent")
	p.quiet()
}
