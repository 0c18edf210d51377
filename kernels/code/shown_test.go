package code

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"demesne/kernels"
)

func bundle(forms map[string]any) kernels.Bundle {
	b := kernels.Bundle{}
	for mime, v := range forms {
		b[mime], _ = json.Marshal(v)
	}
	return b
}

// TestRichest checks which form of a value is shown. Forms that cannot be decoded are passed over.
func TestRichest(t *testing.T) {
	for _, c := range []struct {
		forms      map[string]any
		mime, text string
	}{
		{map[string]any{"text/plain": "x", "text/html": "<b>", "image/png": "aGk="}, "image/png", "hi"},
		{map[string]any{"text/plain": "x", "text/html": []string{"<b>", "</b>"}, "image/png": "!"}, "text/html", "<b></b>"},
		{map[string]any{"text/plain": "x", "application/vnd.plotly.v1+json": map[string]any{"data": 1}, "text/html": "<b>"}, "application/vnd.plotly.v1+json", `{"data":1}`},
		{map[string]any{"text/plain": "x", "image/svg+xml": "<svg/>"}, "image/svg+xml", "<svg/>"},
		{map[string]any{"text/plain": "x", "application/geo+json": 7}, "application/geo+json", "7"},
		{map[string]any{"text/plain": "x"}, "", ""},
		{map[string]any{"text/plain": "x", "image/png\r\nX: y": "aGk=", "../../etc": "x", "TEXT/HTML": "x"}, "", ""},
		{nil, "", ""},
	} {
		s, ok := Richest(bundle(c.forms))
		if got := s.Text + string(s.Data); s.MIME != c.mime || got != c.text || ok != (c.mime != "") {
			t.Errorf("%v: %q %q %v", c.forms, s.MIME, got, ok)
		}
	}
	if got := Texts(bundle(map[string]any{"text/plain": "x", "image/png": "aGk=", "application/json": []int{1}, "bad type": "x"})); len(got) != 2 || got["application/json"] != "[1]" {
		t.Errorf("texts: %v", got)
	}
}

// TestFiguresSave checks that a file is always a new one in the directory, whatever the sandbox has put there.
func TestFiguresSave(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "f")
	err := errors.Join(os.WriteFile(outside, []byte("kept"), 0o644), os.Symlink(outside, filepath.Join(dir, "figure-1.png")),
		os.Symlink("nowhere", filepath.Join(dir, "figure-2.png")), os.Mkdir(filepath.Join(dir, "figure-3.png"), 0o755))
	if err != nil {
		t.Fatal(err)
	}
	f := Figures{Dir: dir}
	path, err := f.Save(Shown{MIME: "image/png", Data: []byte("png")})
	if got, _ := os.ReadFile(path); err != nil || path != filepath.Join(dir, "figure-4.png") || string(got) != "png" {
		t.Errorf("%s %q %v", path, got, err)
	}
	if got, _ := os.ReadFile(outside); string(got) != "kept" {
		t.Errorf("a link was followed: %q", got)
	}
	if path, err = f.Save(Shown{MIME: "video/x-other", Data: []byte("x")}); err != nil || filepath.Base(path) != "figure-5.out" {
		t.Errorf("%s %v", path, err)
	}
	f.bytes = maxFigureBytes
	if _, err := f.Save(Shown{MIME: "image/png", Data: []byte("x")}); !errors.Is(err, errFigures) {
		t.Errorf("over the bound: %v", err)
	}
	f = Figures{Dir: dir + "/gone"}
	if _, err := f.Save(Shown{MIME: "image/png", Data: []byte("x")}); err == nil {
		t.Error("a removed directory is not an error")
	}
}

// TestPlain checks which values plain text shows whole.
func TestPlain(t *testing.T) {
	const table = "<table border=\"1\" class=\"dataframe\"><tr><td>1</td></tr></table>"
	for _, row := range []struct {
		name  string
		value map[string]any
		ok    bool
	}{
		{"R's number", map[string]any{"text/plain": "[1] 2", "text/html": "2", "text/markdown": "2", "text/latex": "2"}, true},
		{"R's table", map[string]any{"text/plain": "  a\n1 1", "text/html": table, "text/latex": "x"}, true},
		{"pandas' table", map[string]any{"text/plain": "   a\n0  1", "text/html": []string{table}}, true},
		{"plain text only", map[string]any{"text/plain": "2"}, false},
		{"a table with a picture", map[string]any{"text/plain": "a", "text/html": table + "<IMG src=x>"}, false},
		{"a table with a link", map[string]any{"text/plain": "a", "text/html": table + "<a href=x>"}, false},
		{"a page", map[string]any{"text/plain": "<IPython.core.display.HTML object>", "text/html": table}, false},
		{"a widget of R", map[string]any{"text/plain": "HTML widgets cannot be represented in plain text (need html)", "text/html": "<div>", "text/markdown": "x"}, false},
		{"HTML of a class", map[string]any{"text/plain": "Report()", "text/html": "<b>all is well</b>"}, false},
		{"a figure", map[string]any{"text/plain": "Figure", "text/html": table, "image/png": "aGk="}, false},
		{"no plain text", map[string]any{"text/html": table}, false},
		{"not a text", map[string]any{"text/plain": 5, "text/html": table}, false},
	} {
		b := kernels.Bundle{}
		for mime, v := range row.value {
			b[mime], _ = json.Marshal(v)
		}
		if got, ok := Plain(b); ok != row.ok || ok && got != row.value["text/plain"] {
			t.Errorf("%s: %q, %v", row.name, got, ok)
		}
	}
}
