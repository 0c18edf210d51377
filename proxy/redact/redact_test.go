package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
)

const secret = "s3cr3t/&\"+v"

func TestText(t *testing.T) {
	v := New(secret, "abcdefgh", "efghijkl", "tiny", "no")
	for text, want := range map[string]string{
		"":                                 "",
		"nothing here":                     "nothing here",
		"a " + secret + " b":               "a " + stars(len(secret)) + " b",
		"tiny and no":                      "**** and no",
		"tin":                              "tin",
		"xabcdefghijklx":                   "x" + stars(12) + "x",
		"tinytiny":                         stars(8),
		url.QueryEscape(secret) + "&x":     stars(len(url.QueryEscape(secret))) + "&x",
		"/" + url.PathEscape(secret) + "/": "/" + stars(len(url.PathEscape(secret))) + "/",
		"s3cr3t%2f%26%22%2bv":              stars(19),
	} {
		if got := v.Text(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := (*Values)(nil).Text(secret); got != secret || New("", "abc") != nil {
		t.Errorf("nothing to look for: %q", got)
	}
}

// TestEscapes checks the forms in which servers reflect a value. All of them are blanked whole.
func TestEscapes(t *testing.T) {
	const value = `k/1+"x'<&>=~!é`
	v := New(value)
	for name, form := range map[string]string{
		"hexadecimal":           "6b2f312b2278273c263e3d7e21c3a9",
		"capital hexadecimal":   "6B2F312B2278273C263E3D7E21C3A9",
		"quote()":               "k/1%2B%22x%27%3C%26%3E%3D~%21%C3%A9",
		"quote() in lower case": "k/1%2b%22x%27%3c%26%3e%3d~%21%c3%a9",
		"quote(safe='')":        "k%2F1%2B%22x%27%3C%26%3E%3D~%21%C3%A9",
		"encodeURIComponent()":  "k%2F1%2B%22x'%3C%26%3E%3D~!%C3%A9",
		"JSON":                  `k/1+\"x'<&>=~!é`,
		"JSON with slashes":     `k\/1+\"x'<&>=~!é`,
		"JSON for HTML":         `k/1+\"x'\u003c\u0026\u003e=~!é`,
		"JSON in JSON":          `k/1+\\\"x'<&>=~!é`,
		"slashes in JSON":       `k\\/1+\\\"x'<&>=~!é`,
		"slashes in both":       `k\\\/1+\\\"x'<&>=~!é`,
		"JSON in JSON for HTML": `k/1+\\\"x'\\u003c\\u0026\\u003e=~!é`,
		"html.escape()":         "k/1+&quot;x&#x27;&lt;&amp;&gt;=~!é",
		"Go's HTML":             "k/1+&#34;x&#39;&lt;&amp;&gt;=~!é",
		"htmlspecialchars()":    "k/1+&quot;x&#039;&lt;&amp;&gt;=~!é",
		"XML":                   "k/1+&quot;x&apos;&lt;&amp;&gt;=~!é",
	} {
		if got := v.Text("a " + form + " b"); got != "a "+stars(len(form))+" b" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestLines checks base64 that is broken into lines, as MIME and PEM have it: at each alignment and place in a line, however
// the text is split.
func TestLines(t *testing.T) {
	for name, value := range map[string]string{"short": secret, "long": strings.Repeat("k3y-", 50)} {
		v := New(value)
		for _, c := range []struct {
			width int
			end   string
		}{{76, "\r\n"}, {76, "\n"}, {64, "\n"}, {1, "\r\n"}} {
			for before := range 60 {
				var text strings.Builder
				for rest := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("u", before) + value + "tail")); rest != ""; {
					n := min(c.width, len(rest))
					text.WriteString(rest[:n] + c.end)
					rest = rest[n:]
				}
				got := v.Text(text.String())
				if n := strings.Count(got, "*"); n < len(value)*4/3-2 || len(got) != text.Len() {
					t.Errorf("%s, lines of %d, after %d bytes:\n%s", name, c.width, before, got)
				}
				for _, size := range []int{1, 3, 77} {
					var out bytes.Buffer
					w := v.Writer(&out)
					for rest := text.String(); rest != ""; rest = rest[min(size, len(rest)):] {
						w.Write([]byte(rest[:min(size, len(rest))]))
					}
					if w.Close(); out.String() != got {
						t.Errorf("%s, lines of %d, after %d bytes, writes of %d:\n%s", name, c.width, before, size, out.String())
					}
				}
			}
		}
		half := base64.StdEncoding.EncodeToString([]byte(value))[:8]
		var out bytes.Buffer
		w := v.Writer(&out)
		for range 1000 {
			w.Write([]byte("\n" + half + "\n\n"))
		}
		if len(w.held) > 12 {
			t.Errorf("%s: %d bytes are held back", name, len(w.held))
		}
	}
}

// TestFoldedText checks that a value is found in any case, as parsers change the case of header names.
func TestFoldedText(t *testing.T) {
	v := New("ghp_AbCdEf123")
	coded := base64.StdEncoding.EncodeToString([]byte("xghp_AbCdEf123"))
	for text, want := range map[string]string{
		"":                      "",
		"X-Other":               "X-Other",
		"X-Ghp_abcdef123-Ab":    "X-" + stars(13) + "-Ab",
		"GHP_ABCDEF123":         stars(13),
		strings.ToLower(coded):  strings.ToLower(coded[:2]) + stars(16) + strings.ToLower(coded[18:]),
		"\u0130x-ghp_AbCdEf123": "\u0130x-" + stars(13),
	} {
		if got := v.FoldedText(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := (*Values)(nil).FoldedText(secret); got != secret {
		t.Errorf("nothing to look for: %q", got)
	}
}

func stars(n int) string { return strings.Repeat("*", n) }

// TestInside checks that a value inside a longer text is blanked in that text's base64, except for the characters
// that it shares with its neighbours.
func TestInside(t *testing.T) {
	for _, code := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 7 {
			whole := strings.Repeat("u", before) + secret + "tail"
			got := New(secret).Text(code.EncodeToString([]byte(whole)))
			if n := strings.Count(got, "*"); n < len(secret)*4/3-2 {
				t.Errorf("after %d bytes: %s", before, got)
			}
		}
	}
	doc, err := json.Marshal(map[string]string{"token": secret})
	if err != nil {
		t.Fatal(err)
	}
	if got := New(secret).Text(string(doc)); strings.Contains(got, "s3cr3t") {
		t.Errorf("in JSON: %s", got)
	}
}

// TestCut checks that the output does not depend on how a text is split. Only a possible beginning of a value is
// held back.
func TestCut(t *testing.T) {
	v := New(secret, "abcdefgh", "efghijkl", "cdef")
	text := "xx" + secret[:5] + "abcdefghijklabcdefghcdefs3cr3t/&" + secret + "abc"
	want := v.Text(text)
	for size := 1; size <= len(text); size++ {
		var out bytes.Buffer
		w := v.Writer(&out)
		for rest := text; rest != ""; rest = rest[min(size, len(rest)):] {
			w.Write([]byte(rest[:min(size, len(rest))]))
		}
		if len(w.held) != 3 {
			t.Errorf("held back: %q", w.held)
		}
		if err := w.Close(); err != nil || out.String() != want {
			t.Errorf("writes of %d: %q, want %q (%v)", size, out.String(), want, err)
		}
	}
	for name, r := range map[string]io.Reader{
		"whole": strings.NewReader(text), "bytes": iotest.OneByteReader(strings.NewReader(text)), "end with data": iotest.DataErrReader(strings.NewReader(text)),
	} {
		if got, err := io.ReadAll(v.Reader(r)); string(got) != want || err != nil {
			t.Errorf("read %s: %q, want %q (%v)", name, got, want, err)
		}
	}
	var none *Values
	var out bytes.Buffer
	w := none.Writer(&out)
	w.Write([]byte(text))
	if r := strings.NewReader(text); w.Close() != nil || out.String() != text || none.Reader(r) != io.Reader(r) {
		t.Error("no values change something")
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestErrors(t *testing.T) {
	w := New(secret).Writer(full{})
	if _, err := w.Write([]byte("x")); err == nil {
		t.Error("a writer that cannot write")
	}
	if _, err := io.ReadAll(New(secret).Reader(iotest.ErrReader(errors.New("cut")))); err == nil || err.Error() != "cut" {
		t.Errorf("a reader that cannot read: %v", err)
	}
}

// FuzzCut checks that no split lets a value through, and that the only changes are asterisks. What is shown early has the
// same length, and no whole value.
func FuzzCut(f *testing.F) {
	f.Add("abcdefgh", "xxabcdefghabcdefghxx", 3)
	f.Add("aaaaaaaa", "aaaaaaaaaaaaaaab", 1)
	f.Add(secret, "t="+url.QueryEscape(secret), 4)
	f.Add(secret, "dTNjcjN0L\r\nyYiK3Y", 2)
	f.Add(secret, "czNjcjN0\nLyYiK3Y\n\n", 2)
	f.Fuzz(func(t *testing.T, value, text string, size int) {
		if strings.Contains(value, "*") || len(value) > 1<<10 || size < 1 {
			return
		}
		v := New(value)
		var out bytes.Buffer
		w := v.Writer(&out)
		for rest := text; rest != ""; rest = rest[min(size, len(rest)):] {
			w.Write([]byte(rest[:min(size, len(rest))]))
			if v != nil && len(w.held) >= 6*len(value) {
				t.Fatalf("%d bytes are held back", len(w.held))
			}
		}
		w.Close()
		got := out.String()
		if len(got) != len(text) || got != v.Text(text) {
			t.Fatalf("%q: %q, whole %q", text, got, v.Text(text))
		}
		if v != nil && strings.Contains(got, value) {
			t.Fatalf("%q is in %q", value, got)
		}
		if v != nil {
			early := &stream{values: v}
			var shown []byte
			for rest := text; rest != ""; rest = rest[min(size, len(rest)):] {
				shown = append(append(shown, early.pass([]byte(rest[:min(size, len(rest))]), false)...), early.show()...)
			}
			if shown = append(shown, early.pass(nil, true)...); len(shown) != len(text) || strings.Contains(string(shown), value) && size > 1 {
				t.Fatalf("%q is shown as %q", text, shown)
			}
			for i := range shown {
				if shown[i] != text[i] && shown[i] != '*' {
					t.Fatalf("%q is shown as %q", text, shown)
				}
			}
		}
		for i := range len(got) {
			if got[i] != text[i] && got[i] != '*' {
				t.Fatalf("%q became %q", text, got)
			}
		}
	})
}
