package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPictures checks that each picture is what its source makes, is XML without scripts and addresses, and that no picture
// lacks its source.
func TestPictures(t *testing.T) {
	const dir = "../../docs/pictures"
	all, err := draw(dir)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range all {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s is not what its source makes, %v: make docs", path, err)
		}
		d := xml.NewDecoder(strings.NewReader(want))
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			if e, ok := token.(xml.StartElement); ok && (e.Name.Local == "script" || e.Name.Local == "image" || e.Name.Local == "a") {
				t.Errorf("%s has an element %s", path, e.Name.Local)
			}
		}
	}
	found, err := filepath.Glob(dir + "/*.svg")
	if err != nil || len(found) != len(all) {
		t.Errorf("%d pictures of %d sources: %q %v", len(found), len(all), found, err)
	}
}

func TestRefused(t *testing.T) {
	const head = "title | T\nabout | A\nsize 100 100\n"
	for source, want := range map[string]string{
		"box a 0 0 10 10 | x":                          "needs a title",
		head + "box a 0 0 20 10 | a long heading":      "needs",
		head + "box a 0 0 90 9|a\nbox a 0 0 90 9|a":    "two boxes",
		head + "arrow a.left b.right":                  `no box "a"`,
		head + "box a 0 0 90 9|a\narrow a.in a.left":   `no side "in"`,
		head + "circle 1 2 | x":                        "unknown line",
		head + "note 1 x | y":                          "neither a number nor a style",
		head + "box a 0 0 90 9|a\narrow a.left+x a.to": "no number",
	} {
		if svg, err := drawFigure(source); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q: %s", source, err, want, svg)
		}
	}
	for _, source := range []string{"", "seconds,a\n0,1\n1,2\n", "# T\nseconds,a\n0,1\n", "# T\nseconds,a\n0,1\n1,x\n"} {
		if svg, err := drawGraphs(source); err == nil {
			t.Errorf("%q: %s", source, svg)
		}
	}
	for _, source := range []string{"", "# T\n", "# T\n```console\n$ x", "# T\n```console\n$ " + strings.Repeat("x", 100) + "\n```\n"} {
		if _, err := drawTerminal(source); err == nil {
			t.Errorf("%q is drawn", source)
		}
	}
}
