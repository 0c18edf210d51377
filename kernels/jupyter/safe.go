package jupyter

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"demesne/internal/text"
	"demesne/kernels"
)

// Jupyter's pages execute scripts of a kernel's outputs with the rights of the user at the Jupyter server, which can
// execute commands on this machine. So an output keeps only forms that no page executes, and that load nothing from
// the network: a sandbox without egress could send data with the address of an image.

// harmless makes a message of a kernel harmless for a browser. It reports whether the message may be passed on.
func harmless(m *kernels.Message) bool {
	m.Buffers, m.Metadata = nil, empty
	switch m.Header.Type {
	case "display_data", "update_display_data", "execute_result", "inspect_reply":
		return rewrite(m, func(c map[string]json.RawMessage) {
			c["metadata"] = sizes(c["metadata"])
			c["data"] = harmlessBundle(c["data"])
		})
	case "execute_reply":
		return rewrite(m, func(c map[string]json.RawMessage) {
			delete(c, "user_expressions")
			c["payload"] = harmlessPayload(c["payload"])
		})
	case "kernel_info_reply":
		return rewrite(m, func(c map[string]json.RawMessage) {
			delete(c, "help_links")
			delete(c, "supported_features")
		})
	}
	return true
}

// sizes returns the part of an output's metadata that says how large images are.
func sizes(raw json.RawMessage) json.RawMessage {
	var all map[string]json.RawMessage
	json.Unmarshal(raw, &all)
	kept := map[string]map[string]float64{}
	for _, mime := range []string{"image/png", "image/jpeg", "image/gif", "image/webp"} {
		var of map[string]json.RawMessage
		json.Unmarshal(all[mime], &of)
		for _, name := range []string{"width", "height"} {
			if n := 0.0; json.Unmarshal(of[name], &n) == nil && n > 0 {
				if kept[mime] == nil {
					kept[mime] = map[string]float64{}
				}
				kept[mime][name] = n
			}
		}
	}
	out, err := json.Marshal(kept)
	if err != nil {
		return empty
	}
	return out
}

// rewrite changes the content of a message, which must be an object.
func rewrite(m *kernels.Message, change func(map[string]json.RawMessage)) bool {
	var c map[string]json.RawMessage
	if json.Unmarshal(m.Content, &c) != nil || c == nil {
		return false
	}
	change(c)
	raw, err := json.Marshal(c)
	m.Content = raw
	return err == nil
}

// harmlessPayload keeps the pages of help, the next cell's text, and the end of a console.
func harmlessPayload(raw json.RawMessage) json.RawMessage {
	var all, kept []map[string]json.RawMessage
	if json.Unmarshal(raw, &all) != nil {
		return json.RawMessage("[]")
	}
	for _, p := range all {
		switch string(p["source"]) {
		case `"page"`:
			p["data"] = harmlessBundle(p["data"])
		case `"set_next_input"`, `"ask_exit"`:
		default:
			continue
		}
		kept = append(kept, p)
	}
	out, err := json.Marshal(kept)
	if err != nil || kept == nil {
		return json.RawMessage("[]")
	}
	return out
}

// harmlessBundle returns the harmless forms of a bundle of MIME types.
func harmlessBundle(raw json.RawMessage) json.RawMessage {
	var b kernels.Bundle
	if json.Unmarshal(raw, &b) != nil {
		return empty
	}
	safe := map[string]any{}
	for mime, value := range b {
		switch mime {
		case "text/plain", "image/png", "image/jpeg", "image/gif", "image/webp":
			if s, ok := b.Text(mime); ok {
				safe[mime] = s
			}
		case "application/json":
			safe[mime] = value
		case "application/vnd.plotly.v1+json":
			if v, ok := offline(value); ok {
				safe[mime] = v
			}
		}
	}
	if source, ok := b.Text("text/markdown"); ok {
		safe["text/plain"] = source
	}
	if source, ok := b.Text("text/latex"); ok && onlyDraws(source) {
		safe["text/latex"] = source
	} else if ok && safe["text/plain"] == nil {
		safe["text/plain"] = source
	}
	if page, ok := b.Text("text/html"); ok {
		if page = harmlessHTML(page); page != "" {
			safe["text/html"] = page
		}
	} else if svg, ok := b.Text("image/svg+xml"); ok {
		safe["text/html"] = imageOf(svg)
	}
	if len(safe) == 0 && len(b) > 0 {
		safe["text/plain"] = withheld(b)
	}
	out, err := json.Marshal(safe)
	if err != nil {
		return empty
	}
	return out
}

// Bounds of a notice.
const (
	maxForms = 5  // that it names
	maxForm  = 80 // bytes of a name, which is the code's
)

// withheld is shown in place of an output of which nothing is left, such as a widget.
func withheld(b kernels.Bundle) string {
	var names []string
	for _, mime := range slices.Sorted(maps.Keys(b)) {
		if len(names) == maxForms {
			names = append(names, "…")
			break
		}
		names = append(names, text.SafeLine(strings.ToValidUTF8(mime[:min(len(mime), maxForm)], "")))
	}
	return "demesne withheld this output (" + strings.Join(names, ", ") + "): a browser could execute it. demesne kernel install --trust-output shows it"
}

// offline returns a JSON value without addresses in its strings.
func offline(raw json.RawMessage) (v any, ok bool) {
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return nil, false
	}
	return withoutAddresses(v), true
}

func withoutAddresses(v any) any {
	switch v := v.(type) {
	case string:
		if strings.Contains(v, "//") || strings.ContainsAny(v, "<\\") {
			return ""
		}
	case []any:
		for i := range v {
			v[i] = withoutAddresses(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = withoutAddresses(v[name])
		}
	}
	return v
}
