package webpage

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"unicode/utf8"

	"demesne/internal/lazy"
	"demesne/internal/text"
)

// Main is the program.
func Main() {
	var o Order
	var a Answer
	err := json.Unmarshal([]byte(os.Args[len(os.Args)-1]), &o)
	if err == nil {
		err = o.page(context.Background(), &a)
	}
	if err != nil {
		a.Error = text.SafeLine(err.Error())
	}
	e := json.NewEncoder(os.Stdout)
	e.SetEscapeHTML(false)
	if e.Encode(a) != nil {
		os.Exit(1)
	}
}

func (o *Order) page(ctx context.Context, a *Answer) error {
	u, _, err := Parse(o.URL)
	if err != nil {
		return err
	}
	if o.Render {
		a.Page, a.Asked, err = o.render(ctx, u.String())
	} else {
		a.Page, err = fetch(ctx, u.String())
	}
	return err
}

// sameHost follows redirects within the host of the first request, where nothing else is reachable.
func sameHost(r *http.Request, via []*http.Request) error {
	if len(via) > maxHops || r.URL.Hostname() != via[0].URL.Hostname() || r.URL.Scheme != "http" && r.URL.Scheme != "https" {
		return http.ErrUseLastResponse
	}
	return nil
}

func fetch(ctx context.Context, address string) (*Page, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", "demesne")
	r.Header.Set("Accept", "text/markdown, text/html, application/xhtml+xml, text/*;q=0.8, */*;q=0.5")
	client := http.Client{CheckRedirect: sameHost}
	a, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer a.Body.Close()
	p := &Page{URL: a.Request.URL.String(), Status: a.StatusCode}
	if to, err := a.Location(); err == nil && a.StatusCode/100 == 3 {
		p.Redirect = text.SafeLine(to.String())
		return p, nil
	}
	body, err := io.ReadAll(io.LimitReader(a.Body, maxBody+1)) // decompressed
	if err != nil && len(body) == 0 {
		return nil, fmt.Errorf("read %q: %w", p.URL, err)
	}
	if len(body) > maxBody || err != nil {
		body, p.Truncated = body[:min(len(body), maxBody)], true
	}
	if err := p.read(ctx, body, a.Header.Get("Content-Type")); err != nil {
		return nil, err
	}
	return p, nil
}

// read sets the title and the text of p.
func (p *Page) read(ctx context.Context, body []byte, contentType string) error {
	if contentType == "" {
		contentType = http.DetectContentType(body)
	}
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return fmt.Errorf("content type %q is malformed", text.SafeLine(contentType))
	}
	isHTML := kind == "text/html" || kind == "application/xhtml+xml"
	switch {
	case kind == "application/pdf":
		out, err := through(ctx, body, "pdftotext", "-layout", "-", "-")
		p.keep(string(out))
		return err
	case !isHTML && !strings.HasPrefix(kind, "text/") && !strings.HasSuffix(kind, "json") && !strings.HasSuffix(kind, "xml"):
		return fmt.Errorf("%s is not text", kind)
	}
	charset := params["charset"]
	if m := declared.Get().FindSubmatch(body[:min(len(body), 1024)]); charset == "" && isHTML && m != nil {
		charset = string(m[1])
	}
	if body, err = decode(ctx, body, charset); err != nil {
		return err
	}
	if isHTML {
		return p.readHTML(body)
	}
	p.keep(string(body))
	return nil
}

var (
	// declared finds the charset that a document declares.
	declared = lazy.Regexp{Expr: `(?i)<meta[^>]*charset\s*=\s*["']?([\w.:-]+)`}
	// charsetName is the name of a charset, which is not another word to iconv.
	charsetName = lazy.Regexp{Expr: `^\w[\w.:-]*$`}
	// latin is what Windows-1252 has where Latin-1 has control characters. Browsers read both as Windows-1252.
	latin = []rune("€\u0081‚ƒ„…†‡ˆ‰Š‹Œ\u008dŽ\u008f\u0090‘’“”•–—˜™š›œ\u009džŸ")
)

// decode returns UTF-8. Text without a charset that is not UTF-8 is Latin-1.
func decode(ctx context.Context, body []byte, charset string) ([]byte, error) {
	switch name := strings.ToLower(charset); {
	case name == "utf-8" || name == "utf8", name == "" && utf8.Valid(body):
		return body, nil
	case name == "" || name == "us-ascii" || name == "iso-8859-1" || name == "windows-1252":
		var out strings.Builder
		for _, b := range body {
			r := rune(b)
			if b >= 0x80 && b < 0xa0 {
				r = latin[b-0x80]
			}
			out.WriteRune(r)
		}
		return []byte(out.String()), nil
	case !charsetName.Get().MatchString(name):
		return nil, fmt.Errorf("charset %q is malformed", text.SafeLine(charset))
	}
	return through(ctx, body, "iconv", "-c", "-f", charset, "-t", "UTF-8")
}

// packages are Debian's packages of the programs that the sandbox may lack, and an image that has them.
var packages = map[string]string{
	"pdftotext": "poppler-utils; the image media has it", "iconv": "libc-bin", "chromium": "chromium; the image browser has it",
}

// through returns what a program of the sandbox makes of body, at most maxBody bytes.
func through(ctx context.Context, body []byte, name string, args ...string) ([]byte, error) {
	program, err := exec.LookPath(name)
	if err != nil {
		return nil, fmt.Errorf("this page needs %s, which the image of its sandbox does not have (package %s)", name, packages[name])
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = bytes.NewReader(body)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	kept, err := io.ReadAll(io.LimitReader(out, maxBody))
	if len(kept) == maxBody {
		cmd.Process.Kill()
	}
	// A damaged document has text too, so the exit code matters only without any.
	if failed := cmd.Wait(); err == nil && failed != nil && len(kept) == 0 {
		err = fmt.Errorf("%s: %w: %s", name, failed, text.Shorten(said.String(), maxTitle))
	}
	return kept, err
}
