package page

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// Root is the path below which the page is.
const Root = "/page/"

//go:embed assets
var assets embed.FS

// Policies of documents. A frame's document has an opaque origin, also when it is opened by its address. It loads nothing,
// because browsers send "Origin: null" for that, which the server refuses.
const (
	policyPage = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; frame-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
	policyFrame = "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; " +
		"frame-ancestors 'self'; script-src "
	policyScreen = "img-src data:; " + policyFrame // pointers, and compressed parts of the screen
	policyOutput = "img-src data: blob:; font-src data:; media-src data:; " + policyFrame
)

// receive is the first script of the document that shows an HTML output with its scripts. It takes the output from the page.
const receive = `addEventListener("message",e=>{if(e.source!==parent)return;document.open();document.write(String(e.data));document.close()},{once:true});parent.postMessage("ready","*")`

// file is a file of the page, ready to be sent.
type file struct {
	body              []byte
	kind, tag, policy string
}

func newFile(name, policy string, body []byte) file {
	sum := sha256.Sum256(body)
	return file{body, kind(name), `"` + hex.EncodeToString(sum[:12]) + `"`, policy}
}

// files returns the files by their path below [Root].
func files() (map[string]file, error) {
	all := map[string]file{}
	err := fs.WalkDir(assets, "assets", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := assets.ReadFile(name)
		short := strings.TrimPrefix(name, "assets/")
		all[short] = newFile(short, policyPage, b)
		return err
	})
	text := func(name string) string { return string(all[name].body) }
	all["frame/still.html"] = frame("Output", policyOutput, "", "", text("frame/still.js"))
	all["frame/live.html"] = newFile("live.html", policyOutput+"'unsafe-inline' 'unsafe-eval'", frame("Output", "", "", "", receive).body)
	all["frame/terminal.html"] = frame("Terminal", policyFrame, text("vendor/xterm.css")+text("frame/terminal.css"), `<div id="screen"></div>`,
		text("vendor/xterm.js"), text("vendor/addon-fit.js"), text("frame/terminal.js"))
	all["frame/screen.html"] = frame("Screen", policyScreen, text("frame/screen.css"), `<div id="screen"></div>`, text("vendor/novnc.js"), text("frame/screen.js"))
	all["frame/colour.html"] = frame("Syntax colours", policyFrame, "", "", text("vendor/highlight.js"), text("vendor/dockerfile.js"), text("frame/colour.js"))
	return all, err
}

// frame returns a document with its styles and scripts in it. Its policy allows only these scripts.
func frame(title, policy, styles, body string, scripts ...string) file {
	var b strings.Builder
	fmt.Fprintf(&b, "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>%s</title>\n<style>%s</style>\n<body>%s\n", title, styles, body)
	for _, s := range scripts {
		sum := sha256.Sum256([]byte(s))
		policy += "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "' "
		fmt.Fprintf(&b, "<script>%s</script>\n", s)
	}
	return newFile("frame.html", policy, []byte(b.String()))
}

// kind returns a file's media type, whatever the machine's table of types says.
func kind(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".html":
		return "text/html; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return "text/plain; charset=utf-8"
}
