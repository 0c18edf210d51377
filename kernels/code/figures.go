package code

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"demesne/internal/lazy"
	"demesne/kernels"
)

// Shown is a value that code showed, in the richest form that it has. All of it comes from a kernel and is untrusted,
// except that MIME has the form of a MIME type.
type Shown struct {
	MIME string
	Text string // of a text type
	Data []byte // of a binary type
}

// forms are the MIME types that a frontend shows, the richest first, with the extensions of their files. A type of Jupyter's
// that ends in +json is text.
var forms = []struct{ mime, extension string }{
	{"image/png", ".png"}, {"image/jpeg", ".jpg"}, {"image/gif", ".gif"}, {"image/webp", ".webp"},
	{"audio/wav", ".wav"}, {"audio/mpeg", ".mp3"}, {"audio/ogg", ".ogg"}, {"video/mp4", ".mp4"}, {"video/webm", ".webm"},
	{"application/pdf", ".pdf"}, {"application/vnd.plotly.v1+json", ".plotly.json"}, {"image/svg+xml", ".svg"}, {"text/html", ".html"},
	{"text/markdown", ".md"}, {"text/latex", ".tex"}, {"application/json", ".json"},
}

// mimeType is the form of a MIME type without parameters.
var mimeType = lazy.Regexp{Expr: `^(text|image|audio|video|application)/[a-z0-9][a-z0-9.+-]{0,99}$`}

// Richest returns a bundle in its richest form. ok is false if it has none but plain text.
func Richest(b kernels.Bundle) (s Shown, ok bool) {
	for _, f := range forms {
		if len(b[f.mime]) > 0 && s.take(b, f.mime) {
			return s, true
		}
	}
	for mime := range b { // forms that are not in the table
		if mime != plainText && mimeType.Get().MatchString(mime) && !strings.HasPrefix(mime, "text/") && s.take(b, mime) {
			return s, true
		}
	}
	return Shown{}, false
}

const plainText = "text/plain"

// Plain returns the plain text of a value that it shows whole, such as a number or a table: the other forms are texts too,
// and only mark it up. ok is false for a page, and for plain text that stands for something else.
func Plain(b kernels.Bundle) (plain string, ok bool) {
	plain, ok = b.Text(plainText)
	trimmed := strings.TrimSpace(plain)
	if !ok || trimmed == "" || strings.HasPrefix(trimmed, "<") || strings.Contains(trimmed, "plain text") {
		return "", false
	}
	html, ok := b.Text("text/html")
	if s, rich := Richest(b); !ok || !rich || s.MIME != "text/html" || embeds.Get().MatchString(html) {
		return "", false
	}
	marked := len(b["text/markdown"]) > 0 || len(b["text/latex"]) > 0 // as R's values are
	return plain, marked || strings.Contains(html, "<table")
}

// embeds finds elements of HTML that plain text cannot show.
var embeds = lazy.Regexp{Expr: `(?i)<(script|img|svg|canvas|iframe|object|embed|video|audio|form|a)\b`}

// Texts returns the forms of a bundle that are texts, by MIME type.
func Texts(b kernels.Bundle) map[string]string {
	all := map[string]string{}
	for mime := range b {
		if s := (Shown{}); mimeType.Get().MatchString(mime) && s.take(b, mime) && s.Data == nil {
			all[mime] = s.Text
		}
	}
	return all
}

// take sets s to one form of a bundle.
func (s *Shown) take(b kernels.Bundle, mime string) bool {
	if binary(mime) {
		raw, err := b.Bytes(mime)
		*s = Shown{MIME: mime, Data: raw}
		return err == nil && len(raw) > 0
	}
	one, ok := b.Text(mime)
	if !ok && json.Valid(b[mime]) { // a JSON form is the value itself
		one, ok = string(b[mime]), true
	}
	*s = Shown{MIME: mime, Text: one}
	return ok
}

// binary reports whether a type's data is in base64.
func binary(mime string) bool {
	kind, form, _ := strings.Cut(mime, "/")
	switch kind {
	case "image":
		return form != "svg+xml"
	case "audio", "video":
		return true
	}
	return mime == "application/pdf" || mime == "application/octet-stream"
}

// Figures saves what code shows as files of a session's output directory. The sandbox can write there too: a file of
// Figures is always a new one, whose name it chooses, and no link is followed.
type Figures struct {
	Dir string // path of the host; only the sandbox's own files are below it

	mu    sync.Mutex
	last  int
	bytes int64
}

// Bounds of the files of one session. The sandbox's limits do not count them.
const (
	maxFigures     = 10000
	maxFigureBytes = 512 << 20
	maxTaken       = 1000 // names that the sandbox has taken
)

var errFigures = errors.New("the session has saved too many figures")

// Save writes a value to a new file and returns the file's path on the host.
func (f *Figures) Save(s Shown) (path string, err error) {
	content := s.Data
	if content == nil {
		content = []byte(s.Text)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bytes+int64(len(content)) > maxFigureBytes || f.last >= maxFigures {
		return "", errFigures
	}
	root, err := os.OpenRoot(f.Dir)
	if err != nil {
		return "", fmt.Errorf("save figure: %w", err)
	}
	defer root.Close()
	to, err := f.create(root, extension(s.MIME))
	if err != nil {
		return "", fmt.Errorf("save figure: %w", err)
	}
	_, err = to.Write(content)
	if err = errors.Join(err, to.Close()); err != nil {
		root.Remove(to.Name())
		return "", fmt.Errorf("save figure: %w", err)
	}
	f.bytes += int64(len(content))
	return filepath.Join(f.Dir, filepath.Base(to.Name())), nil
}

// create creates the next file that does not exist.
func (f *Figures) create(root *os.Root, extension string) (*os.File, error) {
	for range maxTaken {
		f.last++
		to, err := root.OpenFile(fmt.Sprintf("figure-%d%s", f.last, extension), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if !errors.Is(err, fs.ErrExist) {
			return to, err
		}
	}
	return nil, fs.ErrExist
}

// extension returns the extension of the files of a type.
func extension(mime string) string {
	for _, f := range forms {
		if f.mime == mime {
			return f.extension
		}
	}
	return ".out"
}
