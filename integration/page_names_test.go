package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"demesne/integration/fixture"
)

// leaks are what makes a browser look up a name or connect to it, without a click and without a script of the output.
// Each %s is a name of its own.
var leaks = []string{
	`<iframe src="http://%s/"></iframe>`, `<iframe srcdoc='<iframe src="http://%s/"></iframe>'></iframe>`, `<frameset><frame src="http://%s/"></frameset>`,
	`<object data="http://%s/"></object>`, `<embed src="http://%s/">`, `<portal src="http://%s/"></portal>`, `<fencedframe src="https://%s/"></fencedframe>`,
	`<meta http-equiv="refresh" content="0;url=http://%s/">`, `<svg><foreignObject><meta http-equiv=refresh content="0;url=https://%s/"></foreignObject></svg>`,
	`<link rel="dns-prefetch" href="//%s">`, `<link rel="preconnect" href="https://%s">`, `<link rel=prefetch href="http://%s/">`,
	`<link rel="stylesheet" href="http://%s/">`, `<link rel=icon href="http://%s/">`, `<link rel=modulepreload href="http://%s/">`,
	`<link rel=preload as=image imagesrcset="http://%s/ 1x">`, `<link rel=prerender href="http://%s/">`, `<link rel=manifest href="http://%s/">`,
	`<base href="http://%s/"><img src=x>`, `<img src="http://%s/">`, `<img srcset="http://%s/ 1x">`, `<picture><source srcset="http://%s/"><img></picture>`,
	`<video src="http://%s/" poster="http://%s/"></video>`, `<audio><source src="http://%s/"></audio>`, `<video><track default src="http://%s/"></video>`,
	`<svg><image href="http://%s/"/></svg>`, `<svg><use xlink:href="http://%s/#a"/></svg>`, `<svg><filter id=f><feImage href="http://%s/"/></filter><rect filter="url(#f)" width=9 height=9></svg>`,
	`<svg><rect fill="url(http://%s/#a)" width=9 height=9></svg>`, `<svg><image id=i /><set href="#i" attributeName=href to="http://%s/"></svg>`,
	`<p style="background:url(http://%s/)">x`, `<p style="background:u\72l(http://%s/)">x`, `<p style="background-image:image-set('http://%s/' 1x)">x`,
	`<p style="--a:url(http://%s/);background:var(--a)">x`, `<p style="background:url(http://%s/) var(--b)">x`, `<p style="list-style:url(http://%s/);display:list-item">x`,
	`<p style="cursor:url(http://%s/),auto;mask:url(https://%s/#m);content:url(http://%s/)">x`,
	`<style>@import "http://%s/";</style>`, `<style>@import url(http://%s/);p{color:red}</style>`, `<style>@font-face{font-family:f;src:url(http://%s/)} p{font-family:f}</style>`,
	`<style>body{background:url(http://%s/)} @media all{body::before{content:url(http://%s/)}} @supports (color:red){body{border-image:url(http://%s/)}}</style>`,
	`<table background="http://%s/"><tr><td background="http://%s/">x</table>`, `<a href="http://%s/">x</a>`, `<a href="//%s/" target=_top>x</a>`, `<a ping="http://%s/" href="#x">x</a>`,
	`<meta http-equiv="x-dns-prefetch-control" content="on"><a href="https://%s/">x</a>`, `<map name=m><area href="http://%s/"></map>`,
	`<form action="http://%s/"><input type=image src="http://%s/" autofocus></form>`, `<script src="http://%s/"></script>`,
	`<script type=speculationrules>{"prefetch":[{"urls":["http://%s/"]}],"prerender":[{"urls":["http://%s/"]}]}</script>`,
	`<div><template shadowrootmode="open"><link rel=dns-prefetch href="//%s"><img src="http://%s/"></template></div>`,
	`<math href="http://%s/"><mtext>x</mtext></math>`, `<noscript><link rel=dns-prefetch href="//%s"></noscript>`, `<body background="http://%s/">`,
	`<svg><style><link rel=dns-prefetch href="//%s"></style></svg>`, `<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;link rel=dns-prefetch href=//%s&gt;">`,
	`<plaintext><link rel=dns-prefetch href="//%s">`,
}

// leaking returns a page that names hosts below a domain in all ways of leaks.
func leaking(domain string) string {
	var b strings.Builder
	for i, l := range leaks {
		names := make([]any, strings.Count(l, "%s"))
		for n := range names {
			names[n] = fmt.Sprintf("n%d-%d.%s", i, n, domain)
		}
		fmt.Fprintf(&b, l+"\n", names...)
	}
	return b.String()
}

// row returns one of leaks with a name.
func row(i int, name string) string { return strings.ReplaceAll(leaks[i], "%s", name) }

// TestPageOutputNames (N39) shows HTML outputs in Chromium and in Firefox that name hosts, and looks at the queries that
// arrive at the DNS server. An output that was not cleaned makes such queries, as does a page of another server. An
// ordinary output, with styles and a chart, looks as before.
func TestPageOutputNames(t *testing.T) {
	both := []string{`<link rel="dns-prefetch"`, `<link rel="preconnect"`, `<link rel=prefetch`, `<link rel=icon`, `<img src`}
	for name, c := range map[string]struct {
		open func(*internet) *pageTab
		acts []string // beginnings of rows of leaks for which this browser looks up a name
	}{
		"chromium": {func(n *internet) *pageTab { return n.browseWith(n.serveAPI(), nil).pageTab }, both},
		"firefox":  {func(n *internet) *pageTab { return n.browseFirefox(n.serveAPI()) }, append([]string{`<a href=`}, both...)},
	} {
		t.Run(name, func(t *testing.T) { onInternet(t, func(n *internet) { n.outputNames(c.open, c.acts) }) })
	}
}

func (n *internet) outputNames(open func(*internet) *pageTab, acts []string) {
	var conn net.PacketConn
	var err error
	n.elsewhere.Do(func() { conn, err = net.ListenPacket("udp", "8.9.9.9:53") })
	if err != nil {
		n.Fatal(err)
	}
	defer conn.Close()
	names := fixture.ServeNames(conn)
	p := open(n)
	p.output(`<h1>cleaned</h1>`+leaking("leak.test"), false)
	p.inFrame("cleaned")
	var alone, texts []string // an element of the others may hide one
	for i := range leaks {
		texts = append(texts, fmt.Sprintf("one-%d.", i))
		alone = append(alone, "<p>"+texts[i]+"</p>"+row(i, fmt.Sprintf("alone-%d.leak.test", i)))
	}
	p.outputs(alone...)
	p.inFrame(texts...)
	p.looks()
	p.output(`<h1>ran</h1>`+strings.Replace(leaking("known.test"), "<plaintext>", "", 1), true)
	eventually(n, "a query of an output with its scripts", func() bool { return len(names.Below("known.test")) > 0 })
	p.looksUp(names, acts)
	if leaked := names.Below("leak.test"); len(leaked) > 0 {
		n.Errorf("the browser looked up %q", leaked)
	}
}

// looksUp opens the rows of leaks that begin so as pages of a server that neither cleans them nor forbids look-ups, and
// waits for a query of each: without these the test could not fail.
func (p *pageTab) looksUp(names *fixture.Names, acts []string) {
	p.t.Helper()
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if i, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/")); err == nil && i < len(leaks) {
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, row(i, fmt.Sprintf("plain-%d.test", i)))
		}
	}))
	defer plain.Close()
	for i, l := range leaks {
		if !slices.ContainsFunc(acts, func(begin string) bool { return strings.HasPrefix(l, begin) }) {
			continue
		}
		p.check(p.Open(fmt.Sprintf("%s/%d", plain.URL, i)))
		eventually(p.t, "a query of "+l, func() bool { return len(names.Below(fmt.Sprintf("plain-%d.test", i))) > 0 })
	}
}

// output shows an HTML output, as the view of outputs does.
func (p *pageTab) output(html string, scripts bool) {
	p.t.Helper()
	p.outputs(html)
	if scripts {
		p.check(p.Eval(`document.querySelector("#main button").click()`, nil))
	}
}

// outputs shows HTML outputs one below the other, each in a frame of its own.
func (p *pageTab) outputs(html ...string) {
	p.t.Helper()
	p.check(p.Eval(`import("/page/show.js").then(m => document.getElementById("main").replaceChildren(...`+string(must(json.Marshal(html)))+`.map(text => m.html(text))))`, nil))
}

// looks shows outputs as pandas and drawing programs make them, and checks what a reader sees.
func (p *pageTab) looks() {
	p.t.Helper()
	p.output(`<html><head><title>t</title><style>#T_1 .hot { background-color: #ff0000; padding: calc(10px + 1px) } @media (min-width: 1px) { th { text-align: left } }</style></head>
		<body class="page" style="color: rgb(0, 0, 255)"><table id="T_1" border="1" class="dataframe"><thead><tr style="text-align: right;"><th>name(s)</th></tr></thead>
		<tbody><tr><td class="hot" colspan="2" title="f(x)">42</td></tr></tbody></table>
		<svg width="20" height="20" viewBox="0 0 20 20"><defs><linearGradient id="g"><stop offset="0" stop-color="red"/></linearGradient></defs>
		<rect width="10" height="10" fill="url(#g)" transform="translate(1,2)"/><use href="#g"/></svg>
		<img alt="dot" src="data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA="><a href="#T_1">back</a><b>shown</b></body></html>`, false)
	p.inFrame("shown")
	seen := p.EvalFrames(`JSON.stringify([getComputedStyle(document.querySelector(".hot")).backgroundColor, getComputedStyle(document.querySelector(".hot")).paddingTop,
		getComputedStyle(document.querySelector("th")).textAlign, getComputedStyle(document.body).color, document.querySelector("rect").getBBox().width,
		getComputedStyle(document.querySelector("rect")).fill, document.querySelector("img").naturalWidth, document.querySelector("a").getAttribute("href"),
		document.querySelector("td").title, document.querySelector("svg").viewBox.baseVal.width, document.querySelector("linearGradient") instanceof SVGElement])`)
	want := `["rgb(255, 0, 0)","11px","left","rgb(0, 0, 255)",10,"url(\"#g\")",1,"#T_1","f(x)",20,true]`
	if !strings.Contains(strings.Join(seen, "\n"), want) {
		p.t.Errorf("the output looks as %q, not as %s", seen, want)
	}
}
