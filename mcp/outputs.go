package mcp

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
)

// outputs reads the directory of the output directories. Sandboxes wrote its contents and may
// still be writing. It is therefore read by file descriptors without following links, and file
// names appear only in URIs.
type outputs struct {
	root string
	mine func(name string) bool // reports whether a directory of root belongs to a run over MCP; nil: all do
}

// outputScheme is the prefix of output URIs, followed by DIR/PATH, escaped.
const outputScheme = "demesne://outputs/"

// Limits for listing and reading.
const (
	listedRuns  = 50      // newest output directories listed
	listedFiles = 20      // files listed per directory
	visitedMax  = 2000    // entries visited per directory
	readMax     = 8 << 20 // bytes of a file
)

// output is a file that a sandbox wrote.
type output struct {
	Name string `json:"name"` // below output_dir
	URI  string `json:"uri"`
	Size int64  `json:"size"`
	MIME string `json:"mime_type"`
}

// has reports whether an output directory belongs to a run over MCP.
func (o outputs) has(dir string) bool { return o.mine == nil || o.mine(dir) }

// files lists the first most files of the output directory dir. It omits the logs,
// because a result contains them.
func (o outputs) files(dir string, most int) (list []output) {
	root, err := os.OpenRoot(filepath.Join(o.root, dir))
	if err != nil {
		return nil
	}
	defer root.Close()
	fsutil.Walk(root, visitedMax, func(e fsutil.WalkEntry) (more bool) {
		if !e.Type().IsRegular() || e.Path == "stdout.log" || e.Path == "stderr.log" {
			return true
		}
		if info, err := e.Info(); err == nil {
			list = append(list, output{Name: strings.ToValidUTF8(e.Path, "\uFFFD"), URI: uriOf(dir, e.Path), Size: info.Size(), MIME: mimeOf(e.Path)})
		}
		return len(list) < most
	})
	return list
}

// Directories in an agent's output directory: its /out, and one for files that only the host writes.
const agentOut, agentSidecar = "out", "sidecar-results"

// outOf returns the directory with the files of a run, relative to the root.
func (o outputs) outOf(name string) string {
	if info, err := os.Lstat(filepath.Join(o.root, name, agentSidecar)); err == nil && info.IsDir() {
		return path.Join(name, agentOut)
	}
	return name
}

func uriOf(dir, name string) string {
	parts := strings.Split(path.Join(dir, name), "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return outputScheme + strings.Join(parts, "/")
}

// uri returns the URI of a regular file of the outputs by its path on the host; "" for anything else.
func (o outputs) uri(path string) string {
	below, ok := strings.CutPrefix(path, o.root+"/")
	if info, err := os.Lstat(path); o.root == "" || !ok || err != nil || !info.Mode().IsRegular() {
		return ""
	}
	dir, name, _ := strings.Cut(below, "/")
	if name == "" || !o.has(dir) {
		return ""
	}
	return uriOf(dir, name)
}

// types maps file extensions to MIME types that clients can handle. The host's own table is not
// used, so that a result does not depend on the host.
var types = map[string]string{
	".txt": plainText, ".log": plainText, ".md": "text/markdown", ".csv": "text/csv", ".tsv": "text/tab-separated-values",
	".json": "application/json", ".jsonl": "application/jsonl", ".xml": "application/xml", ".yaml": "application/yaml", ".yml": "application/yaml",
	".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".py": "text/x-python", ".go": "text/x-go", ".sh": "text/x-shellscript",
	".diff": "text/x-diff", ".patch": "text/x-diff",
	".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp", ".svg": "image/svg+xml",
	".pdf": "application/pdf", ".zip": "application/zip", ".gz": "application/gzip", ".tar": "application/x-tar",
	".mp3": "audio/mpeg", ".wav": "audio/wav", ".mp4": "video/mp4", ".webm": "video/webm",
}

const (
	plainText = "text/plain; charset=utf-8"
	anyBytes  = "application/octet-stream"
)

// mimeOf uses only the name. The content comes from the sandbox too, so it is no more reliable.
func mimeOf(name string) string {
	if t := types[strings.ToLower(path.Ext(name))]; t != "" {
		return t
	}
	return anyBytes
}

// recent lists the files of the newest output directories, newest first.
func (o outputs) recent() (list []output) {
	entries, err := os.ReadDir(o.root)
	if err != nil {
		return nil
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return !e.IsDir() || strings.HasPrefix(e.Name(), ".") || !o.has(e.Name()) })
	when := map[string]int64{}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			when[e.Name()] = info.ModTime().UnixNano()
		}
	}
	slices.SortStableFunc(entries, func(a, b fs.DirEntry) int { return int(min(max(when[b.Name()]-when[a.Name()], -1), 1)) })
	for _, e := range entries[:min(len(entries), listedRuns)] {
		dir := o.outOf(e.Name())
		for _, f := range o.files(dir, listedFiles) {
			f.Name = path.Join(dir, f.Name)
			list = append(list, f)
		}
	}
	return list
}

// errNoOutput reports that a URI does not name an output.
var errNoOutput = errors.New("no such output")

// read returns the content and MIME type of a file.
func (o outputs) read(uri string) (content []byte, kind string, err error) {
	escaped, ok := strings.CutPrefix(uri, outputScheme)
	name, err := url.PathUnescape(escaped)
	if !ok || err != nil || !filepath.IsLocal(name) || strings.ContainsRune(name, 0) {
		return nil, "", errNoOutput
	}
	if dir, _, _ := strings.Cut(path.Clean(name), "/"); !o.has(dir) {
		return nil, "", errNoOutput
	}
	f, err := o.open(name)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	st, err := f.Stat()
	switch {
	case err != nil:
		return nil, "", err
	case !st.Mode().IsRegular():
		return nil, "", errNoOutput
	case st.Size() > readMax:
		return nil, "", fmt.Errorf("read output: %d bytes are more than %d; it is %q on the host", st.Size(), readMax, filepath.Join(o.root, name))
	}
	if content, err = io.ReadAll(io.LimitReader(f, readMax)); err != nil {
		return nil, "", fmt.Errorf("read output: %w", err)
	}
	kind = mimeOf(name)
	switch {
	case kind != anyBytes:
	case utf8.Valid(content):
		kind = plainText
	default:
		kind = http.DetectContentType(content)
	}
	return content, kind, nil
}

// open opens an output without following links (openat2(2)). O_NONBLOCK keeps it from blocking on
// a named pipe.
func (o outputs) open(name string) (*os.File, error) {
	root, err := os.Open(o.root)
	if err != nil {
		return nil, fmt.Errorf("read output: %w", err)
	}
	defer root.Close()
	fd, err := fsutil.Openat2(int(root.Fd()), name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	switch err {
	case nil:
		return os.NewFile(uintptr(fd), name), nil
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.EXDEV, unix.ENXIO, unix.ENAMETOOLONG:
		return nil, errNoOutput
	}
	return nil, fmt.Errorf("read output: %w", err)
}
