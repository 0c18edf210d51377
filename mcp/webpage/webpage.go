// Package webpage is the frontend webpage of demesne-frontend, which fetches or renders one page of the web and prints it as markdown.
// It parses hostile bytes. Package mcp/toolbackend/sandboxes therefore executes it in a sandbox that reaches only the host of
// the page: the sandbox decides about addresses, and bounds time and memory. The program bounds what it reads and prints.
//
//	demesne-frontend webpage '{"url":"https://…"}'   an [Order]
//
// The sandbox's pdftotext reads a PDF, its iconv another charset than UTF-8 and Latin-1, and its chromium renders: render.go.
package webpage

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"demesne/internal/text"
)

// Name is the name of the frontend.
const Name = "webpage"

// Bounds. An answer fits into what a session keeps of stdout: a JSON string of MaxMarkdown bytes has at most twice as many, and
// base64 of maxShot bytes a third more.
const (
	maxBody     = 8 << 20
	MaxMarkdown = 300 << 10
	maxShot     = 256 << 10
	maxTitle    = 300
	maxHops     = 5
)

// Order asks for a page.
type Order struct {
	URL        string `json:"url"`
	Render     bool   `json:"render,omitempty"`     // in a browser, with its scripts
	WaitFor    string `json:"wait_for,omitempty"`   // a CSS selector
	Screenshot bool   `json:"screenshot,omitempty"` // as JPEG
}

// Page is a page of the web. All of it is what its server says.
type Page struct {
	URL        string `json:"url"` // after redirects within the host
	Title      string `json:"title"`
	Status     int    `json:"status"`
	Redirect   string `json:"redirect,omitempty"` // a redirect that was not followed
	Markdown   string `json:"markdown"`
	Truncated  bool   `json:"truncated"`
	Screenshot []byte `json:"screenshot,omitempty"`
}

// Hit is one result of a search engine.
type Hit struct {
	Title   string `json:"title"`
	URL     string `json:"url"`
	Content string `json:"content"`
}

// Answer is what the program prints.
type Answer struct {
	Page  *Page    `json:"page,omitempty"`
	Error string   `json:"error,omitempty"`
	Asked []string `json:"asked,omitempty"` // hosts that a rendered page asked for, where the browser itself also asks for others
}

// Parse checks an address that a model gives. rule is the network rule for its host.
func Parse(address string) (u *url.URL, rule string, err error) {
	u, err = url.Parse(address)
	switch {
	case err != nil || len(address) > 8<<10:
		return nil, "", errors.New("url: not an address")
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, "", fmt.Errorf("url %q: not http://HOST/… or https://HOST/…", text.SafeLine(address))
	case u.User != nil:
		return nil, "", errors.New("url: has a user name or a password")
	case strings.ContainsFunc(u.Hostname(), notInHost):
		return nil, "", fmt.Errorf("url: %q is not the name of a host", text.SafeLine(u.Hostname()))
	}
	u.Fragment, u.RawFragment = "", ""
	return u, u.Host, nil
}

// notInHost reports whether no name of a host has r. The words of a rule have other characters, such as "*".
func notInHost(r rune) bool {
	return r < 0x80 && !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' || r == '_')
}

// keep sets the text, without control characters, and bounds it and the title.
func (p *Page) keep(s string) {
	s = strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	if len(s) > MaxMarkdown {
		s, p.Truncated = strings.ToValidUTF8(s[:MaxMarkdown], ""), true
	}
	p.Title = text.SafeLine(p.Title)
	if p.Markdown = strings.TrimSpace(s); len(p.Title) > maxTitle {
		p.Title = strings.ToValidUTF8(p.Title[:maxTitle], "") + "…"
	}
}
