package webpage

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestParse(t *testing.T) {
	for address, want := range map[string]string{
		"https://a.example/x?y#z": "a.example", "http://a.example:8080": "a.example:8080", "https://bücher.example/": "bücher.example",
		"": "", "a.example": "", "ftp://a.example/": "", "https:///x": "", "https://u:p@a.example/": "", "https://*.example/": "",
		"https://[::1]/": "", "https://a example/": "", "https://a.example/" + strings.Repeat("x", 9000): "",
	} {
		u, rule, err := Parse(address)
		if rule != want || (err == nil) != (want != "") || err == nil && u.Fragment != "" {
			t.Errorf("%.60q: %q %v", address, rule, err)
		}
	}
}

// TestReadCharsets checks that text of any charset becomes valid UTF-8 without control characters.
func TestReadCharsets(t *testing.T) {
	for _, c := range []struct{ kind, body, want string }{
		{"text/html; charset=shift_jis", "<p>\x93\xfa\x96{</p>", "日本"},
		{"text/html", "<meta charset=gbk><p>\xd6\xd0\xce\xc4</p>", "中文"},
		{"text/plain; charset=utf-16le", "h\x00i\x00", "hi"},
		{"text/plain; charset=windows-1252", "\x93h\xff\x94", "“hÿ”"},
		{"text/plain", "h\xff", "hÿ"},
		{"application/json", "{\"a\":\t1}", "{\"a\":\t1}"},
		{"", "<html><p>sniffed", "sniffed"},
	} {
		p := &Page{URL: "https://a.example/"}
		if err := p.read(t.Context(), []byte(c.body), c.kind); err != nil || p.Markdown != c.want {
			t.Errorf("%s: %q %v, want %q", c.kind, p.Markdown, err, c.want)
		}
	}
	for kind, want := range map[string]string{"image/png": "not text", "text/plain; charset=nonsense": "iconv", `text/plain; charset="-o/x"`: "malformed", "text/html; charset": "malformed", "text/": "malformed"} {
		if err := (&Page{URL: "https://a.example/"}).read(t.Context(), []byte("x"), kind); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// TestMainPart checks which part of a document is read.
func TestMainPart(t *testing.T) {
	long := strings.Repeat("word ", 60)
	for _, c := range []struct{ body, has, lacks string }{
		{"<body><header>top</header><nav>menu</nav><main><header><h1>Title</h1></header><p>" + long + "</main><footer>end", "# Title", "top menu end"},
		{"<div>side</div><div role=main><p>" + long + "<nav>menu</nav></div>", "word", "side menu"},
		{"<p>listing<article>one " + long + "</article><article>two " + long + "</article><footer>end</footer>", "listing one two", "end"},
		{"<main><script>app()</script></main><p>shown<aside>ad</aside>", "shown", "app ad"},
		{"<p>x<img src='data:image/png;base64,AAAA'><table><tr><th>a|b<th>c<tr><td>1<td>2</table>", "| 1 ", "AAAA"},
		{"<title>no</title><svg><title>drawing</title></svg><p>x\x1b[31m&#27;]0;owned&#7;", "x\\[31m]0;owned", "drawing no"},
		{"<p>" + long + "<a href='/x'>near</a>", "[near](https://a.example/x)", ""},
	} {
		p := &Page{URL: "https://a.example/b"}
		err := p.readHTML([]byte(c.body))
		for _, word := range strings.Fields(c.has) {
			if err != nil || !strings.Contains(p.Markdown, word) {
				t.Errorf("%.80s: no %q in %q, %v", c.body, word, p.Markdown, err)
			}
		}
		for _, word := range strings.Fields(c.lacks) {
			if strings.Contains(p.Markdown, word) {
				t.Errorf("%.80s: %q in %q", c.body, word, p.Markdown)
			}
		}
	}
}

// TestMissingPrograms checks that an error names the package that a sandbox lacks.
func TestMissingPrograms(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for kind, want := range map[string]string{"application/pdf": "poppler-utils; the image media", "text/plain; charset=gbk": "libc-bin"} {
		if err := (&Page{}).read(t.Context(), []byte("%PDF-1.4"), kind); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", kind, err)
		}
	}
	o := Order{URL: "https://a.example/", Render: true}
	if err := o.page(t.Context(), &Answer{}); err == nil || !strings.Contains(err.Error(), "the image browser") {
		t.Errorf("without chromium: %v", err)
	}
}

// FuzzHTML reads hostile documents: the answer is valid, bounded text that a session can keep.
func FuzzHTML(f *testing.F) {
	for _, s := range []string{
		"<title>t</title><article><h1>x</h1><p>" + strings.Repeat("word, ", 100), "<table><tr><td>a|b<td><table>", "<pre>```\n</pre><a href='javascript:1'>x</a>",
		"<svg><math><mi></svg><template><select><option>", strings.Repeat("<b><p>", 100), "<base href='//x'><img src=a srcset='b 2x'>", "\xff\xfe<\x00p\x00>\x00", "<ol start=99999999999><li>",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		p := &Page{URL: "https://a.example/b?c"}
		if err := p.read(t.Context(), body, "text/html"); err != nil {
			return
		}
		b, err := json.Marshal(p.Markdown)
		if err != nil || len(p.Markdown) > MaxMarkdown+3 || len(p.Title) > maxTitle+3 || !utf8.ValidString(p.Markdown) || strings.ContainsAny(p.Markdown+p.Title, "\x1b\x00\r") {
			t.Errorf("%d bytes of text, %d of JSON, title %q, %v", len(p.Markdown), len(b), p.Title, err)
		}
	})
}
