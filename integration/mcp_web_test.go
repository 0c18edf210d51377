package integration

import (
	"compress/gzip"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// webHosts are the names of the web's tests. meta.test and inner.test lead to private addresses.
const webHosts = `127.0.0.1 localhost
8.3.1.1 page.test
8.3.1.2 other.test
8.3.1.3 untrusted.test
127.0.0.1 inner.test
169.254.169.254 meta.test
`

const article = `<html><head><title>On sheep</title></head><body><nav><a href="/x">menu</a></nav><article><h1>On sheep</h1>
<p>Sheep are counted by <a href="/more">shepherds</a>, each evening, with great care and a steady voice.</p>
<p>%s</p><ul><li>one</li><li>two</li></ul></article><script>evil()</script></body></html>`

// pdf is a document with one line. pdftotext makes the table of its objects, which is missing.
const pdf = `%PDF-1.4
1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj
2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj
3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 100]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>endobj
4 0 obj<</Length 43>>stream
BT /F 12 Tf 20 50 Td (sheep in a PDF) Tj ET
endstream endobj
5 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj
trailer<</Root 1 0 R>>
`

// webSite serves the pages of the test.
func (n *internet) webSite(asked *atomic.Int32) http.Handler {
	mux := http.NewServeMux()
	page := func(path string, f http.HandlerFunc) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { n.saw(r.Host + r.URL.Path); f(w, r) })
	}
	long := strings.Repeat("A flock is a group of sheep, and a shepherd knows each of them by name. ", 40)
	page("/article", func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, article, long)
	})
	page("/near", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/article", http.StatusFound) })
	page("/far", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://other.test/x?token=1", http.StatusMovedPermanently)
	})
	for path, to := range map[string]string{"/file": "file:///etc/passwd", "/inner": "http://127.0.0.1:22/", "/meta": "http://meta.test/"} {
		page(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", to)
			w.WriteHeader(http.StatusFound)
		})
	}
	page("/bomb", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		defer z.Close()
		for block := strings.Repeat("0123456789abcde\n", 1<<16); ; {
			if _, err := io.WriteString(z, block); err != nil {
				return
			}
		}
	})
	page("/pdf", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/pdf")
		io.WriteString(w, pdf)
	})
	page("/app", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `<title>app</title><p>loading<script>
			fetch("/late").then(r => r.text()).then(t => { document.body.innerHTML = "<h1 id=done>" + t + "</h1>" })
			for (const a of ["http://other.test/x", "http://127.0.0.1:22/", "file:///etc/passwd"]) fetch(a).catch(() => 0)
		</script>`)
	})
	page("/late", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "made by a script") })
	page("/loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) })
	page("/latin", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html") // the charset is only in the document
		io.WriteString(w, "<meta charset=iso-8859-1><p>caf\xe9</p>")
	})
	page("/wrong", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		io.WriteString(w, "caf\xe9 \x1b[31mred")
	})
	page("/huge", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Content-Length", "10000000000")
		for block := strings.Repeat("0123456789abcde\n", 4096); ; {
			if _, err := io.WriteString(w, block); err != nil {
				return
			}
		}
	})
	page("/slow", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "<p>a beginning")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	page("/deep", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "<html>"+strings.Repeat("<div>", 100000))
	})
	page("/none", func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no such page", http.StatusNotFound) })
	page("/picture", func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Content-Type", "image/png") })
	return mux
}

// TestMCPWeb reads pages of the simulated internet: only hosts that the operator lists, each in a sandbox that reaches
// nothing else, and within bounds.
func TestMCPWeb(t *testing.T) {
	onLevels(t, func(n *internet) {
		// The last certificate is trusted.
		foreign := n.certificate("untrusted.test")
		cert := n.trusted(webHosts)
		var asked atomic.Int32
		web := &http.Server{Handler: n.webSite(&asked)}
		n.Cleanup(func() { web.Close() })
		for at, with := range map[string]tls.Certificate{"8.3.1.1:443": cert, "8.3.1.2:443": cert, "8.3.1.3:443": foreign} {
			go web.Serve(tls.NewListener(n.listen(at), &tls.Config{Certificates: []tls.Certificate{with}}))
		}
		n.extra = append(n.extra, "DEMESNE_TOOLS=web", "DEMESNE_ALLOWED_DOMAINS=page.test untrusted.test inner.test meta.test")
		c := n.mcp()
		c.webPages(t, &asked)
		c.webRefused(n)
		if r := n.demesne("mcp", "call", "fetch_webpage", "url=https://page.test/wrong"); r.code != 0 || !strings.Contains(r.stdout, "café"[:3]+"\uFFFD [31mred\n") {
			t.Errorf("by a shell: %+v", r)
		}
	})
}

// webPages reads pages that may be read.
func (c *mcpClient) webPages(t *testing.T, asked *atomic.Int32) {
	read := func(path string) answer { return c.must("fetch_webpage", args{"url": "https://page.test" + path}) }
	r := read("/article#part")
	for _, want := range []string{"On sheep", "[shepherds](https://page.test/more)", "- one\n- two"} {
		if !strings.Contains(r.Text, want) {
			t.Errorf("an article has no %q: %s", want, r.Text)
		}
	}
	if strings.Contains(r.Text, "evil") || strings.Contains(r.Text, "menu") || r.Fields["title"] != "On sheep" || r.Fields["status"] != 200. || r.Fields["truncated"] != false {
		t.Errorf("an article: %s %v", r.Text, r.Fields)
	}
	if read("/article"); asked.Load() != 1 {
		t.Errorf("a kept page was asked for %d times", asked.Load())
	}
	first := c.must("fetch_webpage", args{"url": "https://page.test/article", "max_output_bytes": 100})
	next := c.must("fetch_webpage", args{"url": "https://page.test/article", "offset": first.Fields["next_offset"]})
	_, whole, _ := strings.Cut(r.Text, "---\n")
	_, one, _ := strings.Cut(first.Text, "---\n")
	if _, two, _ := strings.Cut(next.Text, "---\n"); one+two != whole || len(one) != 100 {
		t.Errorf("two parts are not the whole: %q %q", one, two)
	}
	if r := read("/near"); r.Fields["url"] != "https://page.test/article" {
		t.Errorf("a redirect within the host: %v", r.Fields)
	}
	for path, want := range map[string]string{"/far": "https://other.test/x?token=1", "/file": "file:///etc/passwd", "/inner": "http://127.0.0.1:22/",
		"/meta": "http://meta.test/", "/loop": "https://page.test/loop"} {
		if r := read(path); r.Fields["redirect"] != want || r.Fields["url"] != "https://page.test"+path {
			t.Errorf("a redirect that is not followed: %v", r.Fields)
		}
	}
	for path, want := range map[string]string{"/latin": "café", "/wrong": "caf\uFFFD [31mred", "/none": "no such page", "/pdf": "sheep in a PDF"} {
		if r := read(path); !strings.Contains(r.Text, want) {
			t.Errorf("%s: %q", path, r.Text)
		}
	}
	for _, path := range []string{"/huge", "/bomb"} { // endless, and endless after decompression
		if r := read(path); r.Fields["truncated"] != true || !strings.Contains(r.Text, "0123456789abcde") || r.Fields["next_offset"] != 24000. {
			t.Errorf("%s: %v", path, r.Fields)
		}
	}
}

// webRefused asks for pages that may not be read, or cannot be.
func (c *mcpClient) webRefused(n *internet) {
	var all sync.WaitGroup
	for address, want := range map[string]string{
		"https://other.test/":           `"other.test": not in DEMESNE_ALLOWED_DOMAINS`,
		"https://page.test@other.test/": "user name",
		"https://page.test:8443/":       "not in DEMESNE_ALLOWED_DOMAINS",
		"https://127.0.0.1/":            "it is an address",
		"http://[::1]/":                 "is not the name of a host",
		"http://localhost/":             "name of this network",
		"https://*.test/":               "is not the name of a host",
		"file:///etc/passwd":            "not http://HOST",
		"https://inner.test/":           "(loopback), which no rule lists",
		"https://meta.test/":            "metadata service",
		"https://untrusted.test/":       "certificate",
		"https://page.test/deep":        "512",
		"https://page.test/picture":     "image/png is not text",
	} {
		all.Go(func() {
			if r := c.call("fetch_webpage", args{"url": address}); !r.IsError || !strings.Contains(r.Text, want) {
				n.Errorf("%s: %v %s, want %q", address, r.IsError, r.Text, want)
			}
		})
	}
	all.Wait()
	if r := c.call("web_search", args{"query": "x"}); r.Code == 0 {
		n.Errorf("web_search without an engine: %+v", r)
	}
	if n.heard("other.test") {
		n.Error("a host was reached that is not listed")
	}
}

// TestMCPWebSlow checks that a page that never ends costs a bounded time, by the operator's shorter limit.
func TestMCPWebSlow(t *testing.T) {
	onInternet(t, func(n *internet) {
		n.trusted("127.0.0.1 localhost\n8.3.1.9 page.test\n")
		web := &http.Server{Handler: n.webSite(new(atomic.Int32))}
		n.Cleanup(func() { web.Close() })
		go web.Serve(n.listen("8.3.1.9:80"))
		n.extra = append(n.extra, "DEMESNE_TOOLS=web", "DEMESNE_ALLOWED_DOMAINS=page.test", "DEMESNE_MAX_TIMEOUT=1s")
		c := n.mcp()
		if r := c.call("fetch_webpage", args{"url": "http://page.test/slow"}); !r.IsError || !strings.Contains(r.Text, "the page took more than 1s") {
			t.Errorf("a slow page: %s", r.Text)
		}
	})
}

// TestMCPWebRendered renders a page with this machine's chromium. Its scripts run, and reach no other host and no file.
func TestMCPWebRendered(t *testing.T) {
	program(t, "chromium")
	onInternet(t, func(n *internet) {
		n.trusted(webHosts)
		web := &http.Server{Handler: n.webSite(new(atomic.Int32))}
		n.Cleanup(func() { web.Close() })
		for _, at := range []string{"8.3.1.1:80", "8.3.1.2:80"} {
			go web.Serve(n.listen(at))
		}
		n.extra = append(n.extra, "DEMESNE_TOOLS=web", "DEMESNE_ALLOWED_DOMAINS=page.test inner.test")
		c := n.mcp()
		for _, wait := range []string{"", "#done"} {
			r := c.must("browser_fetch", args{"url": "http://page.test/app", "image": "host", "screenshot": true, "wait_for": wait})
			if !strings.Contains(r.Text, "# made by a script") || r.Fields["title"] != "app" || r.Fields["status"] != 200. || r.field("denied") != "[other.test:80 (no rule)]" ||
				!strings.Contains(string(r.Result), `"data":"/9j/`) { // JPEG
				t.Errorf("%q: %s %v", wait, r.Text, r.Fields)
			}
		}
		var all sync.WaitGroup
		for address, want := range map[string]string{
			"http://page.test/meta": "meta.test:80", "http://page.test/file": "ERR_UNSAFE_REDIRECT", "http://inner.test/": "(loopback), which no rule lists",
			"http://other.test/": "not in DEMESNE_ALLOWED_DOMAINS",
		} {
			all.Go(func() {
				if r := c.call("browser_fetch", args{"url": address, "image": "host"}); r.Fields["status"] == 200. || !strings.Contains(r.Text, want) {
					t.Errorf("%s: %s, want %q", address, r.Text, want)
				}
			})
		}
		all.Wait()
		if n.heard("other.test") {
			t.Error("a host was reached that is not listed")
		}
	})
}

// TestMCPWebSearch asks an engine that is shaped like SearXNG, and no address that the engine names.
func TestMCPWebSearch(t *testing.T) {
	engine := http.NewServeMux()
	engine.HandleFunc("/base/search", func(w http.ResponseWriter, r *http.Request) {
		switch q := r.URL.Query(); {
		case q.Get("format") != "json":
			http.Error(w, "forbidden", http.StatusForbidden)
		case q.Get("q") == "away":
			http.Redirect(w, r, "http://localhost:1/", http.StatusFound)
		case q.Get("q") == "text":
			io.WriteString(w, "<html>")
		case q.Get("q") == "much":
			io.WriteString(w, `{"results":["`+strings.Repeat("x", 3<<20)+`"]}`)
		default:
			json.NewEncoder(w).Encode(map[string]any{"query": q.Get("q"), "number_of_results": 3, "results": []any{
				map[string]any{"url": "https://a.test/?q=" + q.Get("q"), "title": "A\x1b[0m", "content": "first\nline", "engine": "x", "score": 1.5},
				map[string]any{"url": "javascript:alert(1)", "title": "no", "content": ""},
				map[string]any{"url": "https://b.test/", "title": "B", "content": strings.Repeat("é", 10000), "publishedDate": nil},
			}})
		}
	})
	at := httptest.NewServer(engine)
	t.Cleanup(at.Close)
	b := newBox(t)
	b.extra = append(b.extra, "DEMESNE_TOOLS=web", "DEMESNE_SEARCH_URL="+at.URL+"/base")
	c := b.mcp()
	r := c.must("web_search", args{"query": "sheep & goats"})
	hits, _ := r.Fields["results"].([]any)
	if len(hits) != 2 || !strings.Contains(r.Text, "https://a.test/?q=sheep") || strings.Contains(r.Text, "javascript") || strings.Contains(r.Text, "\x1b") || len(r.Text) > 2000 {
		t.Errorf("%q %v", r.Text, hits)
	}
	if r := c.must("web_search", args{"query": "x", "max_results": 1}); len(r.Fields["results"].([]any)) != 1 {
		t.Errorf("one result: %v", r.Fields)
	}
	for query, want := range map[string]string{"away": "the engine answers 302", "text": "not SearXNG's JSON", "much": "larger than", " ": "query must have"} {
		if r := c.call("web_search", args{"query": query}); !r.IsError || !strings.Contains(r.Text, want) {
			t.Errorf("%q: %s", query, r.Text)
		}
	}
}
