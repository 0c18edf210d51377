package jupyter

import (
	"encoding/json"
	"html"
	"regexp"
	"strings"
	"testing"

	"demesne/kernels"
)

func TestHarmlessHTML(t *testing.T) {
	for _, c := range []struct{ page, want string }{
		{`<b>x</b> &amp; y`, `<b>x</b> &amp; y`},
		{`<table class="dataframe" border="1"><tr style="text-align: right;"><th></th><td>1</td></tr></table>`,
			`<table class="dataframe" border="1"><tr style="text-align: right;"><th></th><td>1</td></tr></table>`},
		{`a<script>alert(1)</script>b`, `ab`},
		{`a<script>x<script></script>b`, `ab`},
		{`<SCRIPT SRC=//x.example></SCRIPT>`, ``},
		{`<img src=x onerror=alert(1)>`, `<img>`},
		{`<img src="https://x.example/?data">`, `<img>`},
		{`<img src="data:image/png;base64,AAAA" alt="a&quot;b">`, `<img src="data:image/png;base64,AAAA" alt="a&#34;b">`},
		{`<img src="data:text/html;base64,AAAA">`, `<img>`},
		{`<a href="javascript:alert(1)">x</a>`, `<a rel="noopener noreferrer" target="_blank">x</a>`},
		{`<a href=" java&#10;script:alert(1)">x</a>`, `<a rel="noopener noreferrer" target="_blank">x</a>`},
		{`<a href="https://example.com/">x</a>`, `<a href="https://example.com/" rel="noopener noreferrer" target="_blank">x</a>`},
		{`<p style="background:url(https://x.example)">x</p>`, `<p>x</p>`},
		{`<p style="background:u\72l(x)">x</p>`, `<p>x</p>`},
		{`<div style="position:fixed">x</div>`, `<div>x</div>`},
		{`<style>@import "https://x.example";</style>x`, `x`},
		{`<svg><script>alert(1)</script></svg>x`, `x`},
		{`<svg onload=alert(1)>`, ``},
		{`<iframe srcdoc="<script>alert(1)</script>"></iframe>x`, `x`},
		{`<form action="https://x.example"><input name=a><button>b</button></form>`, `b`},
		{`<meta http-equiv=refresh content="0;url=https://x.example">`, ``},
		{`<base href="https://x.example/"><link rel=stylesheet href="https://x.example">`, ``},
		{`<math><mtext></p><style><img src=x onerror=alert(1)></style></mtext></math>`, ``},
		{`<noscript><p title="</noscript><img src=x onerror=alert(1)>">`, `<img>&#34;&gt;`},
		{`<!-- <script>alert(1)</script> -->x`, `x`},
		{`$\href{javascript:alert(1)}{x}$`, `$\<span></span>href{javascript:alert(1)}{x}$`},
		{`$\frac{1}{\sqrt x}\\y\,\{z\}$ C:\Users`, `$\frac{1}{\sqrt x}\\y\,\{z\}$ C:\<span></span>Users`},
		{`$\def\x#1{\csname h#1\endcsname}\x{ref}$`, `$\<span></span>def\<span></span>x#1{\<span></span>csname h#1\<span></span>endcsname}\<span></span>x{ref}$`},
		{`$\unicode[x]{65}\HREF\html@mathml$`, `$\<span></span>unicode[x]{65}\<span></span>HREF\<span></span>html@mathml$`},
		{`$\\\style{position:fixed}{x}$`, `$\\\<span></span>style{position:fixed}{x}$`},
		{`$\<wbr>href{javascript:alert(1)}{x}$`, `$\<span></span>href{javascript:alert(1)}{x}$`},
		{`$\<!-- -->href{x}$ $\hr<font>ef</font>{x}$`, `$\<span></span>href{x}$ $\<span></span>href{x}$`},
		{`$\<script>x</script>href{x}$ $\&#104;ref{x}$`, `$\<span></span>href{x}$ $\<span></span>href{x}$`},
		{`$\<b>href</b>{x}$`, `$\<b>href</b>{x}$`},
		{`<p onclick="alert(1)" id="a" class="b">x</p>`, `<p class="b">x</p>`},
		{`<details open><summary>a</summary></details>`, `<details open=""><summary>a</summary></details>`},
		{`<template><script>alert(1)</script></template>y<`, `y&lt;`},
	} {
		if got := harmlessHTML(c.page); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.page, got, c.want)
		}
	}
}

// FuzzHarmlessHTML checks that nothing of a page acts: it is the same when it is read again.
func FuzzHarmlessHTML(f *testing.F) {
	for _, s := range []string{`<b>x</b>`, `<a href="x">`, `<svg><style><img src=x onerror=y>`, "<img src=`x`onerror=y>", `<p title="<script>">`, `$\<wbr>href{x}$`, `\\\href`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, page string) {
		once := harmlessHTML(page)
		if again := harmlessHTML(once); again != once {
			t.Errorf("%q\nonce  %q\nagain %q", page, once, again)
		}
		for _, text := range regexp.MustCompile(`<[^>]*>`).Split(once, -1) {
			if !onlyDraws(html.UnescapeString(text)) {
				t.Errorf("%q: %q has a command", page, text)
			}
		}
		low := strings.ToLower(once)
		for _, bad := range []string{"<script", "<iframe", "<svg", "<style", "<object", "<embed", "<form", "<meta", "<link", "<base"} {
			if strings.Contains(low, bad) {
				t.Errorf("%q: %q has %s", page, once, bad)
			}
		}
	})
}

func TestHarmless(t *testing.T) {
	for _, c := range []struct{ typ, content, want string }{
		{"stream", `{"name":"stdout","text":"<script>"}`, `{"name":"stdout","text":"<script>"}`},
		{"display_data", `{"data":{"text/plain":"x","application/javascript":"alert(1)"},"metadata":{"a":1},"transient":{"display_id":"d"}}`,
			`{"data":{"text/plain":"x"},"metadata":{},"transient":{"display_id":"d"}}`},
		{"execute_result", `{"data":{"text/plain":"x","text/html":["<b>","y</b><script>z</script>"],"image/png":"AA=="},"execution_count":1}`,
			`{"data":{"image/png":"AA==","text/html":"\u003cb\u003ey\u003c/b\u003e","text/plain":"x"},"execution_count":1,"metadata":{}}`},
		{"display_data", `{"data":{"text/markdown":"![a](https://x.example)","text/plain":"<Markdown>"}}`, `{"data":{"text/plain":"![a](https://x.example)"},"metadata":{}}`},
		{"display_data", `{"data":{"image/svg+xml":"<svg onload='x'/>"}}`,
			`{"data":{"text/html":"\u003cimg src=\"data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9J3gnLz4=\"\u003e"},"metadata":{}}`},
		{"display_data", `{"data":{"application/vnd.plotly.v1+json":{"data":[{"y":[1,2.50]}],"layout":{"images":[{"source":"https://x.example/?d"}],"title":"T"}}}}`,
			`{"data":{"application/vnd.plotly.v1+json":{"data":[{"y":[1,2.50]}],"layout":{"images":[{"source":""}],"title":"T"}}},"metadata":{}}`},
		{"display_data", `{"data":{"application/vnd.jupyter.widget-view+json":{"model_id":"m"},"text/plain":"W"}}`, `{"data":{"text/plain":"W"},"metadata":{}}`},
		{"display_data", `{"data":{"text/latex":"$\\href{x}$","text/plain":"p"}}`, `{"data":{"text/plain":"p"},"metadata":{}}`},
		{"display_data", `{"data":{"text/latex":"$\\unicode{65}$"}}`, `{"data":{"text/plain":"$\\unicode{65}$"},"metadata":{}}`},
		{"display_data", `{"data":{"text/latex":"$\\displaystyle \\left[\\begin{matrix}x\\\\y\\end{matrix}\\right]\\%$","text/plain":"p"}}`,
			`{"data":{"text/latex":"$\\displaystyle \\left[\\begin{matrix}x\\\\y\\end{matrix}\\right]\\%$","text/plain":"p"},"metadata":{}}`},
		{"display_data", `{"data":{"image/png":"AA=="},"metadata":{"image/png":{"width":640,"height":"x","style":"y"},"text/html":{"isolated":true}}}`,
			`{"data":{"image/png":"AA=="},"metadata":{"image/png":{"width":640}}}`},
		{"display_data", `{"data":7}`, `{"data":{},"metadata":{}}`},
		{"execute_reply", `{"status":"ok","payload":[{"source":"page","data":{"text/html":"<script>x</script>","text/plain":"p"}},{"source":"edit"}],"user_expressions":{"a":{"data":{"text/html":"<script>"}}}}`,
			`{"payload":[{"data":{"text/plain":"p"},"source":"page"}],"status":"ok"}`},
		{"kernel_info_reply", `{"status":"ok","help_links":[{"text":"a","url":"javascript:x"}]}`, `{"status":"ok"}`},
	} {
		m := &kernels.Message{Header: kernels.Header{Type: c.typ}, Content: json.RawMessage(c.content), Buffers: [][]byte{{1}}}
		if ok := harmless(m); !ok || string(m.Content) != c.want || m.Buffers != nil {
			t.Errorf("%s %s\n got %v %s\nwant %s", c.typ, c.content, ok, m.Content, c.want)
		}
	}
	for _, content := range []string{`[]`, `null`, `"x"`, ``} {
		if harmless(&kernels.Message{Header: kernels.Header{Type: "display_data"}, Content: json.RawMessage(content)}) {
			t.Errorf("%s: passed on", content)
		}
	}
}

// TestWithheld checks that one harmless line stands for an output that must not be shown.
func TestWithheld(t *testing.T) {
	const end = "): a browser could execute it. demesne kernel install --trust-output shows it"
	for _, c := range []struct{ data, want string }{
		{`{"application/vnd.jupyter.widget-view+json":{"model_id":"x"}}`, "demesne withheld this output (application/vnd.jupyter.widget-view+json" + end},
		{`{"application/javascript":"alert(1)","text/html":"<script>alert(1)</script>"}`, "demesne withheld this output (application/javascript, text/html" + end},
		{`{"a\u001b]8;;x\u0007\nb":1}`, "demesne withheld this output (a?]8;;x? b" + end},
		{`{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1}`, "demesne withheld this output (a, b, c, d, e, …" + end},
		{`{"` + strings.Repeat("x", 200) + `":1}`, "demesne withheld this output (" + strings.Repeat("x", 80) + end},
		{`{"application/vnd.jupyter.widget-view+json":{},"text/plain":"IntSlider(value=0)"}`, "IntSlider(value=0)"},
		{`{}`, ""},
	} {
		var got map[string]string
		if err := json.Unmarshal(harmlessBundle(json.RawMessage(c.data)), &got); err != nil || got["text/plain"] != c.want || len(got) > 1 {
			t.Errorf("%s: %q, %v; want %q", c.data, got, err, c.want)
		}
	}
}
