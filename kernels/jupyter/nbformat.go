package jupyter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// maxNotebook bounds a notebook file, and all outputs of an execution together, in bytes.
const maxNotebook = 256 << 20

// document is a notebook (nbformat documentation, "The Notebook file format"). It is the decoded JSON itself, so that
// fields that this program does not know stay.
type document map[string]any

// cell is a cell of a notebook.
type cell map[string]any

// readDocument reads a notebook of nbformat 4.
func readDocument(r io.Reader) (document, error) {
	raw, err := io.ReadAll(io.LimitReader(r, maxNotebook+1))
	if err != nil {
		return nil, err
	}
	if len(raw) > maxNotebook {
		return nil, fmt.Errorf("larger than %d MiB", maxNotebook>>20)
	}
	var d document
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&d); err != nil {
		if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) && wrong.Field == "" {
			return nil, fmt.Errorf("not a notebook: its JSON is not an object, but %s", wrong.Value)
		}
		return nil, fmt.Errorf("not a notebook: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, errors.New("not a notebook: text after its end")
	}
	if major, _ := d["nbformat"].(json.Number); major != "4" {
		return nil, fmt.Errorf("not a notebook of nbformat 4, but of %q", string(major))
	}
	if _, err := d.cells(); err != nil {
		return nil, err
	}
	return d, nil
}

// cells returns the cells in their order.
func (d document) cells() ([]cell, error) {
	list, ok := d["cells"].([]any)
	if !ok {
		return nil, errors.New("not a notebook: no list of cells")
	}
	var all []cell
	for i, c := range list {
		one, ok := c.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("not a notebook: cell %d is not an object", i+1)
		}
		if _, ok := cell(one).source(); !ok {
			return nil, fmt.Errorf("not a notebook: the source of cell %d is not text", i+1)
		}
		all = append(all, one)
	}
	return all, nil
}

// language returns the language that the notebook names, or "".
func (d document) language() string {
	for _, path := range [][2]string{{"kernelspec", "language"}, {"language_info", "name"}, {"kernelspec", "name"}} {
		if s, ok := object(object(d["metadata"])[path[0]])[path[1]].(string); ok && s != "" {
			return s
		}
	}
	return ""
}

// setLanguageInfo records what the kernel says about its language, as nbclient does.
func (d document) setLanguageInfo(info any) {
	meta := object(d["metadata"])
	if meta == nil {
		meta = map[string]any{}
		d["metadata"] = meta
	}
	meta["language_info"] = info
}

func object(v any) map[string]any { m, _ := v.(map[string]any); return m }

// source returns the text of a cell, which may be a list of lines.
func (c cell) source() (string, bool) { return joined(c["source"]) }

func joined(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case []any:
		var b strings.Builder
		for _, line := range v {
			s, ok := line.(string)
			if !ok {
				return "", false
			}
			b.WriteString(s)
		}
		return b.String(), true
	}
	return "", false
}

// code returns the code to execute. ok is false for a cell that is not executed.
func (c cell) code() (code string, ok bool) {
	code, _ = c.source()
	return code, c["cell_type"] == "code" && strings.TrimSpace(code) != "" && !c.tagged("skip-execution")
}

// tagged reports whether a cell has a tag.
func (c cell) tagged(tag string) bool {
	tags, _ := object(c["metadata"])["tags"].([]any)
	return slices.ContainsFunc(tags, func(t any) bool { return t == tag })
}

// clear removes the results of a code cell.
func (c cell) clear() {
	if c["cell_type"] == "code" {
		c["outputs"], c["execution_count"] = []any{}, nil
	}
}

// encode returns the notebook as nbformat writes it.
func (d document) encode() ([]byte, error) {
	cells, err := d.cells()
	if err != nil {
		return nil, err
	}
	for _, c := range cells {
		if s, _ := c.source(); c["source"] != nil {
			c["source"] = lines(s)
		}
		outputs, _ := c["outputs"].([]any)
		for _, o := range outputs {
			splitOutput(object(o))
		}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	err = enc.Encode(d)
	return unescaped(b.Bytes()), err
}

// unescaped writes U+2028 and U+2029 as themselves, as nbformat does: Go's encoder always escapes them.
func unescaped(raw []byte) []byte {
	out := raw[:0]
	for i := 0; i < len(raw); i++ {
		switch {
		case raw[i] != '\\':
			out = append(out, raw[i])
		case bytes.HasPrefix(raw[i:], []byte(`\u2028`)), bytes.HasPrefix(raw[i:], []byte(`\u2029`)):
			out = append(out, 0xe2, 0x80, 0xa8+raw[i+5]-'8')
			i += 5
		default:
			out = append(out, raw[i], raw[i+1])
			i++
		}
	}
	return out
}

// splitOutput writes texts as lists of lines.
func splitOutput(o map[string]any) {
	if s, ok := o["text"].(string); ok {
		o["text"] = lines(s)
	}
	data := object(o["data"])
	for mime, v := range data {
		text := strings.HasPrefix(mime, "text/") || mime == "application/javascript" || mime == "image/svg+xml"
		if s, ok := v.(string); ok && text {
			data[mime] = lines(s)
		}
	}
}

// lines splits text as Python's splitlines(keepends=True), so that a notebook is the same, byte by byte, if nbformat writes
// it again.
func lines(s string) []any {
	all := []any{}
	for len(s) > 0 {
		n := len(s)
		for i, r := range s {
			if !strings.ContainsRune("\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029", r) {
				continue
			}
			if n = i + len(string(r)); r == '\r' && n < len(s) && s[n] == '\n' {
				n++
			}
			break
		}
		all, s = append(all, s[:n]), s[n:]
	}
	return all
}
