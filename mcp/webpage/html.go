package webpage

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/base"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/commonmark"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/table"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// Elements that are not for readers, and those around the content of a page.
var (
	silent = []atom.Atom{atom.Script, atom.Style, atom.Noscript, atom.Template, atom.Iframe, atom.Object, atom.Embed, atom.Svg, atom.Form,
		atom.Button, atom.Select, atom.Textarea, atom.Input, atom.Nav, atom.Head}
	around = []atom.Atom{atom.Header, atom.Footer, atom.Aside}
)

// minMain is how many bytes of text the main part of a page has at least: an empty one is filled by scripts.
const minMain = 200

// readHTML reads the main part of a document, or all of it if no part is the main one.
func (p *Page) readHTML(body []byte) error {
	doc, err := html.Parse(bytes.NewReader(body)) // refuses deep nesting
	if err != nil {
		return fmt.Errorf("parse HTML: %w", err)
	}
	for n := range doc.Descendants() {
		if n.DataAtom == atom.Title && n.FirstChild != nil && p.Title == "" {
			p.Title = n.FirstChild.Data
		}
	}
	prune(doc, silent)
	part := mainPart(doc)
	if part == doc {
		prune(doc, around)
	}
	md := converter.NewConverter(converter.WithPlugins(base.NewBasePlugin(), commonmark.NewCommonmarkPlugin(), table.NewTablePlugin()))
	out, err := md.ConvertNode(part, converter.WithDomain(p.URL))
	p.keep(string(out))
	return err
}

// prune removes elements, and images whose address is the image.
func prune(doc *html.Node, elements []atom.Atom) {
	var gone []*html.Node
	for n := range doc.Descendants() {
		if n.Type == html.ElementNode && (slices.Contains(elements, n.DataAtom) || n.DataAtom == atom.Img && strings.HasPrefix(attribute(n, "src"), "data:")) {
			gone = append(gone, n)
		}
	}
	for _, n := range gone {
		n.Parent.RemoveChild(n)
	}
}

// mainPart returns the element with the content of a page: the main one, or the only article. Without it that is doc.
func mainPart(doc *html.Node) *html.Node {
	var articles []*html.Node
	for n := range doc.Descendants() {
		if (n.DataAtom == atom.Main || attribute(n, "role") == "main") && hasText(n) {
			return n
		}
		if n.DataAtom == atom.Article && hasText(n) {
			articles = append(articles, n)
		}
	}
	if len(articles) == 1 {
		return articles[0]
	}
	return doc
}

func hasText(n *html.Node) bool {
	size := 0
	for c := range n.Descendants() {
		if c.Type == html.TextNode {
			size += len(strings.TrimSpace(c.Data))
		}
	}
	return size >= minMain
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}
