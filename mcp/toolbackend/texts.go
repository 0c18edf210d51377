package toolbackend

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"

	"demesne/mcp"
)

// varTexts names a file with texts about tools, in TOML: a table for each tool, with override or append.
const varTexts = "DEMESNE_TOOL_TEXTS"

// Bounds of the file, and of one text, which each model pays for.
const (
	maxTexts = 1 << 20
	maxText  = 16 << 10
)

// toolTexts reads the file; without one there are no texts. An unknown key is an error.
func toolTexts(path string) (map[string]mcp.ToolText, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", varTexts, err)
	}
	defer f.Close()
	var all map[string]mcp.ToolText
	meta, err := toml.NewDecoder(io.LimitReader(f, maxTexts)).Decode(&all)
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", varTexts, path, err)
	}
	if extra := meta.Undecoded(); len(extra) > 0 {
		return nil, fmt.Errorf("%s %q: key %q: not override or append", varTexts, path, extra[0].String())
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t := all[name]
		for _, text := range []string{t.Override, t.Append} {
			if len(text) > maxText || !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
				return nil, fmt.Errorf("%s %q: tool %q: a text is longer than %d bytes, or no text", varTexts, path, name, maxText)
			}
		}
	}
	return all, nil
}

// warnTexts reports texts about tools that a server does not offer.
func warnTexts(s *mcp.Server, texts map[string]mcp.ToolText, warn io.Writer) {
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if !s.Offers(name) {
			fmt.Fprintf(warn, "warning: %s: tool %q is not offered, and is ignored\n", varTexts, name)
		}
	}
}
