package integration

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// manyAPI answers with 500 sandboxes, whose names have markup, and otherwise as a fakeAPI.
type manyAPI struct {
	*fakeAPI
	mu      sync.Mutex
	all     []object
	removed []string
	away    bool // no request is answered
}

func newManyAPI() *manyAPI {
	m := &manyAPI{fakeAPI: &fakeAPI{planted: markup}}
	for i := range 500 {
		m.all = append(m.all, object{
			"id": fmt.Sprintf("sb-%03d", i), "name": m.t(fmt.Sprintf("box-%03d", i)), "state": []string{"running", "stopped"}[i%2], "image": "debian:12", "created": since(time.Duration(i) * time.Minute),
			"execs": 0, "level": "degraded", "limits": object{}, "network": object{"mode": "none"},
		})
	}
	return m
}

// set changes a field of a sandbox.
func (m *manyAPI) set(i int, field string, value any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all[i][field] = value
}

func (m *manyAPI) answer(method, address, sent string) (int, string, string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	u, err := url.Parse(address)
	id, one := strings.CutPrefix(u.Path, "/v1/sandboxes/")
	switch {
	case err != nil || m.away && strings.HasPrefix(u.Path, "/v1/"):
		return 0, "", "", true
	case method == "DELETE" && one:
		m.removed = append(m.removed, id)
		return 204, "text/plain", "", true
	case u.Path == "/v1/sandboxes":
		return 200, "application/json", string(must(json.Marshal(object{"items": m.all}))), true
	case u.Path == "/v1/usage":
		var items list
		for i := 0; i < len(m.all); i += 2 {
			items = append(items, object{"sandbox": m.all[i]["id"], "samples": list{object{"time": since(0), "cpus": 0.5, "memory_bytes": (1 + i*37%500) << 20, "processes": 2}}})
		}
		return 200, "application/json", string(must(json.Marshal(object{"items": items}))), true
	}
	return m.fakeAPI.answer(method, address, sent)
}

// TestPageList looks at a list of 500 sandboxes: colour marks only a level below the others', a change of one sandbox makes
// one row, rows can be sorted, filtered, and selected, and what is removed together is what was selected and shown.
func TestPageList(t *testing.T) {
	b := newBox(t)
	m := newManyAPI()
	p := b.browse(b.serveAPI(), m.answer)
	p.show("#/sandboxes", "box-499")
	var colours int
	if p.check(p.Eval(`document.querySelectorAll("tbody .state.wait").length`, &colours)); colours > 0 {
		t.Errorf("%d rows have the colour of what is degraded, as the whole machine is", colours)
	}
	first := `document.querySelector("tbody td.main a").textContent`
	p.await(first + `.startsWith("box-000")`) // the newest
	p.check(p.Eval(`(() => { window.rows = 0; new MutationObserver(all => all.forEach(r => { window.rows += r.addedNodes.length })).observe(document.querySelector("tbody"), {childList: true}) })()`, nil))
	m.set(250, "level", "minimal")
	p.changed()
	p.await(`document.querySelector("tbody .state.bad")?.closest("tr").textContent.includes("sb-250")`)
	var rows int
	if p.check(p.Eval(`window.rows`, &rows)); rows != 1 {
		t.Errorf("one change made %d rows", rows)
	}
	p.picture("list-many")

	p.press("Name") // the order is a button of the column
	p.await(first + `.startsWith("box-000")`)
	p.press("Name")
	p.await(first + `.startsWith("box-499") && document.querySelector("th[aria-sort=descending]").textContent === "Name"`)
	p.await(`[...document.querySelectorAll("tbody tr:nth-child(2) td")].some(c => c.textContent.endsWith("MiB"))`)
	p.press("Memory")
	p.await(first + `.startsWith("box-")`)
	p.await(`(all => all.length === 250 && all.every((n, i) => !i || all[i - 1] >= n))([...document.querySelectorAll("td.memory")].map(c => parseFloat(c.textContent)).filter(n => n))`)

	p.choose("state", "stopped")
	p.await(`document.querySelectorAll("tbody tr").length === 250`)
	p.check(p.Eval(`document.querySelector("thead input[type=checkbox]").click()`, nil))
	p.await(`document.querySelector(".bulk").textContent.includes("250")`)
	p.filterBy("box-01")
	p.await(`document.querySelectorAll("tbody tr").length === 5 && document.querySelector(".bulk").textContent.includes("5 selected")`)
	p.check(p.Eval(`document.querySelector("tbody input[type=checkbox]").click()`, nil)) // one less
	p.picture("list-selected")
	p.press("Remove selected")
	p.await(`document.querySelector("dialog[open]").innerText.includes("Remove 4 sandboxes?")`)
	p.picture("list-remove")
	p.fill(nil)
	p.await(`!document.querySelector("dialog[open]")`)
	m.mu.Lock()
	removed := strings.Join(m.removed, " ")
	m.mu.Unlock()
	for _, id := range m.removed {
		if !strings.HasPrefix(id, "sb-01") {
			t.Errorf("removed %q, which was not shown", id)
		}
	}
	if len(m.removed) != 4 {
		t.Errorf("removed %q", removed)
	}
	p.checkMarkup("sandboxes")
}

// TestPageAway checks that buttons keep their places, and that nothing can be done while the server does not answer.
func TestPageAway(t *testing.T) {
	b := newBox(t)
	m := newManyAPI()
	p := b.browse(b.serveAPI(), m.answer)
	p.show("#/sandbox/"+fakeID, "Receipt")
	labels := `[...document.querySelectorAll(".head .actions button")].map(b => b.textContent + (b.disabled ? " off" : "")).join()`
	p.await(labels + ` === "Pause,Stop,Fork,Snapshot,Remove"`)
	var apart float64
	p.check(p.Eval(`(all => all[4].getBoundingClientRect().left - all[3].getBoundingClientRect().right)([...document.querySelectorAll(".head .actions button")])`, &apart))
	if apart < 20 {
		t.Errorf("Remove is %v pixels from the others", apart)
	}
	m.mu.Lock()
	m.away = true
	m.mu.Unlock()
	p.changed()
	p.await(labels + ` === "Pause off,Stop off,Fork off,Snapshot off,Remove off"`)
	p.await(`document.getElementById("main").innerText.includes("The server does not answer.")`)
	p.picture("away")
	m.mu.Lock()
	m.away = false
	m.mu.Unlock()
	p.await(labels + ` === "Pause,Stop,Fork,Snapshot,Remove"`)
}

// changed tells the page that a list is stale.
func (p *pageBrowser) changed() {
	p.t.Helper()
	p.check(p.Eval(`import("/page/api.js").then(m => { m.changed.dispatchEvent(new Event("change")) })`, nil))
}

// choose selects a value of a filter of the list.
func (p *pageBrowser) choose(name, value string) {
	p.t.Helper()
	p.check(p.Eval(fmt.Sprintf(`(e => { e.value = %s; e.dispatchEvent(new Event("change")) })(document.querySelector("main select[name=%s]"))`, quote(value), name), nil))
}

// filterBy types into the list's filter.
func (p *pageBrowser) filterBy(text string) {
	p.t.Helper()
	p.check(p.Eval(fmt.Sprintf(`(e => { e.value = %s; e.dispatchEvent(new Event("input")) })(document.querySelector("input.filter"))`, quote(text)), nil))
}
