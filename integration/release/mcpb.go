package release

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// bundle writes an MCP bundle for clients that install servers from one file. It has all programs in one directory: a ZIP
// file of a bundle has no links.
func (o *Options) bundle(id identity, arch string, programs []program, licences []byte) (name string, err error) {
	manifest, err := os.ReadFile(filepath.Join(o.Source, "integration/release/files/manifest.json"))
	if err != nil {
		return "", err
	}
	files := []file{
		{name: "manifest.json", mode: 0o644, content: bytes.Replace(manifest, []byte(`"VERSION"`), []byte(`"`+id.version+`"`), 1)},
		{name: "licences.txt", mode: 0o644, content: licences},
	}
	for _, p := range programs {
		files = append(files, file{name: "server/" + p.name, mode: 0o755, content: p.content})
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	var packed bytes.Buffer
	z := zip.NewWriter(&packed)
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.DefaultCompression) })
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: id.time}
		h.SetMode(f.mode)
		w, err := z.CreateHeader(h)
		if err == nil {
			_, err = w.Write(f.content)
		}
		if err != nil {
			return "", fmt.Errorf("pack %q: %w", f.name, err)
		}
	}
	if err := z.Close(); err != nil {
		return "", err
	}
	name = fmt.Sprintf("demesne-mcp-%s-linux-%s.mcpb", id.version, arch)
	return name, os.WriteFile(filepath.Join(o.Out, name), packed.Bytes(), 0o644)
}
