package jupyter

import (
	"bytes"
	"encoding/json"
	"fmt"

	"demesne/kernels"
)

// maxText bounds the bytes of all stream text of one cell.
const maxText = 16 << 20

// recorder makes a cell's outputs of the messages of its execution, which are untrusted.
type recorder struct {
	cell    cell
	shown   map[string][]map[string]any // displays of all cells by their id, to update them
	left    *int                        // bytes that the outputs of the notebook may still take
	text    int                         // bytes of streams
	dropped int                         // bytes that were not kept
	wait    bool                        // the next output replaces those before
	failed  *kernels.Error
}

// message is the union of the fields of all outputs.
type message struct {
	Name      string         `json:"name"`
	Text      string         `json:"text"`
	Data      map[string]any `json:"data"`
	Metadata  map[string]any `json:"metadata"`
	Count     json.Number    `json:"execution_count"`
	Wait      bool           `json:"wait"`
	Ename     string         `json:"ename"`
	Evalue    string         `json:"evalue"`
	Traceback []string       `json:"traceback"`
	Transient struct {
		ID string `json:"display_id"`
	} `json:"transient"`
}

// take adds a message. It ignores what is not an output.
func (r *recorder) take(m *kernels.Message) {
	var c message
	dec := json.NewDecoder(bytes.NewReader(m.Content))
	dec.UseNumber()
	if dec.Decode(&c) != nil {
		return
	}
	switch m.Header.Type {
	case "execute_input":
		if c.Count != "" {
			r.cell["execution_count"] = c.Count
		}
	case "stream":
		r.stream(c)
	case "display_data":
		r.add(c, m, map[string]any{"output_type": "display_data", "data": orEmpty(c.Data), "metadata": orEmpty(c.Metadata)})
	case "execute_result":
		count := any(c.Count)
		if c.Count == "" {
			count = nil
		}
		r.add(c, m, map[string]any{"output_type": "execute_result", "data": orEmpty(c.Data), "metadata": orEmpty(c.Metadata), "execution_count": count})
	case "update_display_data":
		r.update(c, m)
	case "error":
		r.failed = &kernels.Error{Type: c.Ename, Message: c.Evalue, Traceback: c.Traceback}
		r.add(c, m, map[string]any{"output_type": "error", "ename": c.Ename, "evalue": c.Evalue, "traceback": list(c.Traceback)})
	case "clear_output":
		if r.wait = c.Wait; !c.Wait {
			r.cell["outputs"] = []any{}
		}
	}
}

func orEmpty(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return m
}

func list(all []string) []any {
	out := []any{}
	for _, s := range all {
		out = append(out, s)
	}
	return out
}

// outputs returns the outputs so far, after a clear_output that waited for the next one.
func (r *recorder) outputs() []any {
	if r.wait {
		r.wait = false
		r.cell["outputs"] = []any{}
	}
	all, _ := r.cell["outputs"].([]any)
	return all
}

// fits counts bytes, and reports whether there is room for them.
func (r *recorder) fits(n int) bool {
	if n > *r.left {
		r.dropped += n
		return false
	}
	*r.left -= n
	return true
}

// add appends an output.
func (r *recorder) add(c message, m *kernels.Message, output map[string]any) {
	all := r.outputs()
	if !r.fits(len(m.Content)) {
		return
	}
	r.cell["outputs"] = append(all, output)
	if id := c.Transient.ID; id != "" {
		r.shown[id] = append(r.shown[id], output)
	}
}

// update replaces the displays of an id, in this cell and in earlier ones.
func (r *recorder) update(c message, m *kernels.Message) {
	for _, output := range r.shown[c.Transient.ID] {
		if !r.fits(len(m.Content)) {
			return
		}
		output["data"], output["metadata"] = orEmpty(c.Data), orEmpty(c.Metadata)
	}
}

// stream appends text to the last output, if that is of the same stream.
func (r *recorder) stream(c message) {
	if c.Name != "stderr" {
		c.Name = "stdout"
	}
	all := r.outputs()
	if r.text += len(c.Text); r.text > maxText || !r.fits(len(c.Text)) {
		r.dropped += len(c.Text)
		return
	}
	if len(all) > 0 {
		if last := object(all[len(all)-1]); last["output_type"] == "stream" && last["name"] == c.Name {
			last["text"].(*bytes.Buffer).WriteString(c.Text)
			return
		}
	}
	r.cell["outputs"] = append(all, map[string]any{"output_type": "stream", "name": c.Name, "text": bytes.NewBufferString(c.Text)})
}

// finish completes the outputs of the cell.
func (r *recorder) finish() {
	all, _ := r.cell["outputs"].([]any)
	for _, o := range all {
		if b, ok := object(o)["text"].(*bytes.Buffer); ok {
			object(o)["text"] = b.String()
		}
	}
	if r.dropped > 0 {
		mark := fmt.Sprintf("demesne: %d further bytes of output were not kept\n", r.dropped)
		r.cell["outputs"] = append(all, map[string]any{"output_type": "stream", "name": "stderr", "text": mark})
	}
}
