package jupyter

import (
	"encoding/base64"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// shown are the elements that harmlessHTML keeps. None executes anything, or loads anything.
var shown = []atom.Atom{
	atom.A, atom.Abbr, atom.B, atom.Blockquote, atom.Br, atom.Caption, atom.Center, atom.Code, atom.Col, atom.Colgroup, atom.Dd, atom.Del,
	atom.Details, atom.Div, atom.Dl, atom.Dt, atom.Em, atom.Figcaption, atom.Figure, atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6,
	atom.Hr, atom.I, atom.Img, atom.Ins, atom.Kbd, atom.Li, atom.Mark, atom.Ol, atom.P, atom.Pre, atom.Q, atom.S, atom.Samp, atom.Section, atom.Small,
	atom.Span, atom.Strong, atom.Sub, atom.Summary, atom.Sup, atom.Table, atom.Tbody, atom.Td, atom.Tfoot, atom.Th, atom.Thead, atom.Tr,
	atom.Tt, atom.U, atom.Ul, atom.Var,
}

// hidden are elements whose text is not for readers.
var hidden = []atom.Atom{
	atom.Script, atom.Style, atom.Title, atom.Template, atom.Noscript, atom.Iframe, atom.Object, atom.Embed, atom.Svg, atom.Math,
	atom.Textarea, atom.Select, atom.Xmp, atom.Noembed, atom.Noframes, atom.Plaintext,
}

// plainAttributes are attributes whose value is only shown.
var plainAttributes = []string{"class", "colspan", "rowspan", "title", "alt", "width", "height", "border", "align", "valign", "start", "open", "scope"}

// harmlessHTML returns a page without anything that acts: a list says which elements and attributes stay. It drops the
// content of scripts and styles, and keeps the text of all other elements. Texts that only dropped elements part are one
// text: a page would find a command of LaTeX that goes over both.
func harmlessHTML(page string) string {
	var b, text strings.Builder
	element := func(s string) {
		b.WriteString(inert(text.String()) + s)
		text.Reset()
	}
	var within atom.Atom // a hidden element
	depth := 0
	z := html.NewTokenizer(strings.NewReader(page))
	z.SetMaxBuf(1 << 20)
	for {
		kind := z.Next()
		if kind == html.ErrorToken {
			element("")
			return b.String()
		}
		t := z.Token()
		switch {
		case within != 0:
			if t.DataAtom == within && kind == html.StartTagToken {
				depth++
			} else if t.DataAtom == within && kind == html.EndTagToken {
				if depth--; depth == 0 {
					within = 0
				}
			}
		case kind == html.TextToken:
			text.WriteString(t.Data)
		case kind == html.StartTagToken && slices.Contains(hidden, t.DataAtom):
			within, depth = t.DataAtom, 1
		case kind == html.EndTagToken && slices.Contains(shown, t.DataAtom):
			element("</" + t.DataAtom.String() + ">")
		case (kind == html.StartTagToken || kind == html.SelfClosingTagToken) && slices.Contains(shown, t.DataAtom):
			element("<" + t.DataAtom.String() + attributes(t) + ">")
		}
	}
}

// attributes returns the attributes that an element keeps.
func attributes(t html.Token) string {
	var b strings.Builder
	for _, a := range t.Attr {
		keep := false
		switch {
		case a.Namespace != "":
		case slices.Contains(plainAttributes, a.Key):
			keep = true
		case a.Key == "style":
			keep = !strings.ContainsAny(a.Val, `\@<>/`) && !strings.Contains(strings.ToLower(a.Val), "url") && !strings.Contains(strings.ToLower(a.Val), "position")
		case a.Key == "src" && t.DataAtom == atom.Img:
			keep = isImage(a.Val)
		case a.Key == "href" && t.DataAtom == atom.A:
			keep = isLink(a.Val)
		}
		if keep {
			b.WriteString(" " + a.Key + `="` + html.EscapeString(a.Val) + `"`)
		}
	}
	if t.DataAtom == atom.A {
		b.WriteString(` rel="noopener noreferrer" target="_blank"`)
	}
	return b.String()
}

// isImage reports whether an address is an image itself. A page shows it without scripts, also an SVG.
func isImage(s string) bool {
	for _, kind := range []string{"png", "jpeg", "gif", "webp", "svg+xml"} {
		if strings.HasPrefix(s, "data:image/"+kind+";base64,") {
			return true
		}
	}
	return false
}

// isLink reports whether an address is a place on the web, where a click leads.
func isLink(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != ""
}

// imageOf returns HTML that shows an SVG as an image.
func imageOf(svg string) string {
	return `<img src="data:image/svg+xml;base64,` + base64.StdEncoding.EncodeToString([]byte(svg)) + `">`
}
