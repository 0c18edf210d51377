package hosttools

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sys/unix"
)

const (
	generatedDir = "generated" // below the workspace
	maxGenerated = 256 << 20   // bytes of one file
	maxMentions  = 64          // paths in one result
)

// deliver copies the files that a result names into the workspace, and rewrites their paths. Files from before the
// call are not delivered: the result may repeat any path that the sandbox sent.
func (r *relay) deliver(res *sdk.CallToolResult, began time.Time) *sdk.CallToolResult {
	if r.o.Workspace == "" || len(r.rule.Generated) == 0 {
		return res
	}
	var rewrites []string
	for _, dir := range r.rule.Generated {
		for _, path := range mentions(texts(res), dir) {
			if inside, err := r.copyIn(dir, path, began); err == nil {
				rewrites = append(rewrites, path, inside)
			} else if !errors.Is(err, errOld) {
				r.o.Warn(err.Error())
			}
		}
	}
	if rewrites == nil {
		return res
	}
	to := strings.NewReplacer(rewrites...)
	for _, c := range res.Content {
		if t, ok := c.(*sdk.TextContent); ok {
			t.Text = to.Replace(t.Text)
		}
	}
	if text, err := json.Marshal(res.StructuredContent); err == nil && res.StructuredContent != nil {
		res.StructuredContent = json.RawMessage(to.Replace(string(text)))
	}
	return res
}

// texts returns the text of a result.
func texts(res *sdk.CallToolResult) string {
	var all strings.Builder
	for _, c := range res.Content {
		if t, ok := c.(*sdk.TextContent); ok {
			all.WriteString(t.Text)
			all.WriteByte('\n')
		}
	}
	if text, err := json.Marshal(res.StructuredContent); err == nil {
		all.Write(text)
	}
	return all.String()
}

// mentions returns the distinct paths below dir that the text contains. A path ends at white space, a quote, a bracket
// or a comma. It is pure.
func mentions(text, dir string) (paths []string) {
	prefix := strings.TrimSuffix(filepath.Clean(dir), "/") + "/"
	seen := map[string]bool{}
	for len(paths) < maxMentions {
		i := strings.Index(text, prefix)
		if i < 0 {
			break
		}
		text = text[i:]
		end := strings.IndexAny(text, " \t\r\n\"'`()<>[],;\\")
		if end < 0 {
			end = len(text)
		}
		path := strings.TrimRight(text[:end], ".:")
		if path == filepath.Clean(path) && !seen[path] {
			seen[path] = true
			paths = append(paths, path)
		}
		text = text[max(end, 1):]
	}
	return paths
}

var errOld = errors.New("the file is from before the call")

// copyIn copies a file below dir to the sandbox, and returns its path there. The sandbox writes to its workspace, so
// nothing there is followed.
func (r *relay) copyIn(dir, path string, began time.Time) (inside string, err error) {
	from, err := openBelow(dir, path)
	if err != nil {
		return "", err
	}
	defer from.Close()
	info, err := from.Stat()
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", &fs.PathError{Op: "deliver", Path: path, Err: errors.New("is not a regular file")}
	case info.ModTime().Before(began.Add(-time.Second)): // clocks of file systems are coarse
		return "", errOld
	case info.Size() > maxGenerated:
		return "", &fs.PathError{Op: "deliver", Path: path, Err: errors.New("is too large")}
	}
	root, err := os.OpenRoot(r.o.Workspace)
	if err != nil {
		return "", err
	}
	defer root.Close()
	name := filepath.Join(generatedDir, filepath.Base(path))
	if err := root.Mkdir(generatedDir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	to, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(to, io.LimitReader(from, maxGenerated))
	return "/workspace/" + name, errors.Join(err, to.Close())
}

// openBelow opens a file without following links out of dir. It does not wait for a FIFO.
func openBelow(dir, path string) (*os.File, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	rel, err := filepath.Rel(filepath.Clean(dir), path)
	if err != nil {
		return nil, err
	}
	return root.OpenFile(rel, os.O_RDONLY|unix.O_NONBLOCK, 0)
}
