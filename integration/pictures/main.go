// Command pictures draws the pictures of the documents. make docs calls it.
//
// Each text file of docs/pictures is a figure: its lines place zones, boxes, arrows and notes (figure.go). Each document there
// has a transcript in a console block, which the tests execute like other documents' transcripts; it becomes a terminal
// (terminal.go). Each CSV is a table of measurements, and becomes charts (graph.go). The SVG beside the source is the same on every machine. It has no script and no font of
// its own, and its colours follow the reader's light or dark scheme.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	all, err := draw("docs/pictures")
	for path, svg := range all {
		if err == nil {
			err = os.WriteFile(path, []byte(svg), 0o644)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

// draw returns the pictures of the sources in a directory by their path.
func draw(dir string) (map[string]string, error) {
	sources, err := filepath.Glob(dir + "/*.*")
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, path := range sources {
		make := map[string]func(string) (string, error){".txt": drawFigure, ".md": drawTerminal, ".csv": drawGraphs}[filepath.Ext(path)]
		if make == nil {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		svg, err := make(string(text))
		if err != nil {
			return nil, fmt.Errorf("draw %s: %w", path, err)
		}
		all[strings.TrimSuffix(path, filepath.Ext(path))+".svg"] = svg
	}
	return all, nil
}
