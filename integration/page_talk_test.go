package integration

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"demesne/integration/fixture"
)

// say writes a message in a conversation, and sends it.
func (p *pageBrowser) say(text, button string) {
	p.t.Helper()
	p.await(`document.querySelector(".composer textarea")`)
	p.check(p.Eval(`(e => { e.value = `+quote(text)+` })(document.querySelector(".composer textarea"))`, nil))
	p.press(button)
}

// TestPageConversation talks with an agent on the page: files, a bound, follow-ups that resume the session, a stop, outputs, and
// another server that lists it. All that the agent says is markup.
func TestPageConversation(t *testing.T) {
	const hostile = `<img src=x onerror="window.ran=1"><script>window.ran=1</script>`
	b, m := newAgentBox(t, func(r fixture.ModelRequest) fixture.Answer {
		told := strings.Fields(r.Prompt)
		switch last := told[len(told)-1]; {
		case last == "wait":
			return shell("sleep 1000")
		case strings.HasSuffix(r.Prompt, "pixel.png\n") && len(r.Results) == 0:
			return shell(`cat /in/notes.txt; cp /in/pixel.png /out/; : > /out/.usage.json.AAAAAAAAAAAAAAAAAAAAAAAAAA; printf 'n,v\na,1\n' > /out/t.csv; echo '` + hostile + `<h1>Report</h1>' > /out/r.html`)
		}
		return fixture.Answer{Text: fmt.Sprintf("Heard %d words. %s", len(told), hostile)}
	})
	b.keepsJobs()
	api := b.serveAPI()
	p := b.browse(api, nil)
	p.show("#/conversations", "No conversations")
	p.press("New conversation")
	p.await(`document.querySelector("#models option[value='fake/claude-sonnet-5']")`)
	p.picture("conversation-new")
	p.drop(".composer", ".composer", b.file("notes.txt", "notes of "+hostile, 0o644), b.file("pixel.png", onePixel, 0o644))
	p.await(`document.querySelectorAll(".chips li").length === 2 && document.querySelector(".chips img")`)
	p.check(p.Eval(`document.querySelector("[name=cost]").value = "2"`, nil))
	p.say("look", "Start")
	p.await(`location.hash.startsWith("#/conversation/2") && document.querySelector(".thread .end")?.textContent.includes("succeeded")`)
	p.await(`document.querySelector(".thread .you").textContent.endsWith("Files: /in/notes.txt, /in/pixel.png") && document.querySelector(".thread details:not([open]) pre + pre").textContent.includes("notes of <img")`)
	p.await(`document.querySelector(".outputs img")?.naturalWidth === 1 && document.querySelector(".outputs td")?.textContent === "a" && !document.querySelector(".outputs").textContent.includes("usage.json")`)
	p.inFrame("Report")
	p.say("go on", "Send")
	p.await(`document.querySelectorAll(".thread .end").length === 2 && document.querySelectorAll(".thread .say")[1].textContent.includes("Heard 6 words. <img src=x")`)
	p.check(p.Eval(`document.querySelector(".thread details").open = true`, nil))
	p.picture("conversation-real")
	p.say("wait", "Send")
	p.await(`document.querySelector(".thread .works") && document.querySelector(".composer .primary").disabled && [...document.querySelectorAll(".thread .tool")].some(e => e.textContent.includes("sleep 1000"))`)
	p.press("Stop")
	p.await(`[...document.querySelectorAll(".thread .end")].at(-1)?.textContent.includes("cancelled")`)
	p.say("thanks", "Send")
	p.await(`[...document.querySelectorAll(".thread .say")].at(-1).textContent.includes("Heard 8 words.")`)
	var at string
	p.check(p.Eval(`location.hash`, &at))
	p.check(p.Eval(`({ran: 0, n: document.querySelectorAll("main script, main img[onerror]").length + ("ran" in window ? 1 : 0)}).n === 0 || (() => { throw new Error("markup") })()`, nil))
	p.quiet("Content Security Policy", "about:srcdoc", "frame/still.html", "failed:  csp")
	api.stop(syscall.SIGTERM)
	p.Said()
	other := b.browse(b.serveAPI(), nil)
	other.show("#/conversations", "look")
	other.await(`document.querySelector("td.right").textContent === "4" && document.querySelector("td.main a").getAttribute("href") === ` + quote(at))
	if r := b.demesne("agent", "run", "--continue", strings.TrimPrefix(at, "#/conversation/"), "bye"); r.code != 0 || !strings.HasPrefix(r.stdout, "Heard 9 words.") {
		t.Errorf("from the command line: %+v", r)
	}
	for _, r := range m.Log() {
		if key := r.Header.Get("X-Api-Key"); key != realKey {
			t.Errorf("a request with the key %q", key)
		}
	}
}

// TestServeFollowUp checks what a follow-up over the API may have, and whose conversations it may continue.
func TestServeFollowUp(t *testing.T) {
	b, _ := newAgentBox(t, func(fixture.ModelRequest) fixture.Answer { return fixture.Answer{Text: "Answer."} })
	b.keepsJobs()
	s := b.serveAPI()
	c := tenant{t, s.url, s.key}
	job := c.get("POST", "/v1/agents", `{"prompt":"x","files":[{"name":"a.txt","content":"YQ=="}],"max_turns":5}`)
	id := job["id"].(string)
	ended := func(id string) map[string]any { return c.get("POST", "/v1/jobs/"+id+"/wait", "") }
	if j := ended(id); j["status"] != "succeeded" || j["conversation"] != j["run"] || j["command"] != "x" {
		t.Errorf("%v", j)
	}
	next := c.get("POST", "/v1/agents", `{"prompt":"y","continue":"`+id+`","files":[{"name":"b.txt","content":"Yg=="}],"labels":{"n":"2"}}`)
	if j := ended(next["id"].(string)); j["status"] != "succeeded" || j["conversation"] != job["conversation"] || j["labels"].(map[string]any)["n"] != "2" {
		t.Errorf("%v", j)
	}
	before := len(names(b.out))
	for body, want := range map[string]int{
		`"continue":"job-00000000-0000-0000-0000-000000000000"`:         404,
		`"continue":"` + job["conversation"].(string) + `"`:             404,
		`"continue":"` + id + `","model":"fake/other"`:                  400,
		`"continue":"` + id + `","network":{"mode":"package-managers"}`: 400,
		`"continue":"` + id + `","limits":{"memory":99999999999}`:       400,
		`"continue":"` + id + `","research":true`:                       400,
		`"research":true,"files":[{"name":"a","content":"YQ=="}]`:       400,
		`"files":[{"name":"../a","content":"YQ=="}]`:                    400,
		`"files":[{"name":"a","content":"YQ=="},{"name":"a"}]`:          400,
		`"files":[{"name":"..","content":"YQ=="}]`:                      400,
	} {
		if status, text := c.send("POST", "/v1/agents", `{"prompt":"z",`+body+`}`); status != want {
			t.Errorf("%s: %d %s", body, status, text)
		}
	}
	if left := names(b.out); len(left) != before {
		t.Errorf("refused requests left files: %q", left)
	}
	c.token = strings.TrimSpace(b.demesne("serve", "token", "add", "--name", "guest", "team").stdout)
	if status, text := c.send("POST", "/v1/agents", `{"prompt":"z","continue":"`+id+`"}`); status != 404 {
		t.Errorf("another namespace continues it: %d %s", status, text)
	}
}
