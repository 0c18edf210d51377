package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Bounds of a warning. A model chose the names in it.
const (
	maxWarned  = 8  // arguments that are named
	warnedName = 40 // bytes of a name or value
)

// unread names the arguments of a call that the tool does not know, and unless unknown is set also those that it cannot
// read and therefore ignores. Without such arguments it returns "".
func unread(in map[string]any, a args, unknown bool) string {
	list := fieldsOf(in).unreadIn(a, "", unknown)
	if more := len(list) - maxWarned; more > 0 {
		list = append(list[:maxWarned], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(list, "; ")
}

// unreadIn does so for an object; prefix names the object.
func (fields properties) unreadIn(a args, prefix string, unknown bool) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(a)) {
		known := fields.named(name)
		object, isObject := a[name].(map[string]any)
		switch {
		case known == nil:
			list = append(list, "unknown argument "+clipped(prefix+name)+" was ignored")
		case isObject && fieldsOf(known.schema) != nil:
			list = append(list, fieldsOf(known.schema).unreadIn(object, name+".", unknown)...)
		case !unknown:
			if why := known.misread(a[name]); why != "" {
				list = append(list, prefix+name+": "+why)
			}
		}
	}
	return list
}

// misread says how a tool understands a value of the wrong type, or "".
func (p property) misread(v any) string {
	if v == nil {
		return ""
	}
	a := args{p.name: v}
	kind := p.schema["type"]
	if kind == nil { // any value
		return ""
	}
	switch v := v.(type) {
	case string:
		_, number := a.numeric(p.name)
		_, wrong := strconv.ParseBool(strings.TrimSpace(v))
		switch n, duration := a.seconds(p.name); {
		case kind == "string" || kind == "boolean" && wrong == nil || (kind == "number" || kind == "integer") && number:
			return ""
		case (strings.HasSuffix(p.name, "_seconds") || p.name == "timeout") && duration:
			return fmt.Sprintf("%s is not a number, and was read as %s seconds", clipped(v), plainNumber(n))
		}
		return fmt.Sprintf("%s is not %s, and was ignored", clipped(v), article(kind))
	case float64:
		if kind == "number" || kind == "integer" || kind == "boolean" {
			return ""
		}
	case bool:
		if kind == "boolean" {
			return ""
		}
	case []any:
		if kind == "array" {
			return ""
		}
	case map[string]any:
		if kind == "object" {
			return ""
		}
	}
	return "not " + article(kind) + ", and was ignored"
}

func article(kind any) string {
	word := fmt.Sprint(kind)
	if strings.ContainsRune("aeio", rune(word[0])) {
		return "an " + word
	}
	return "a " + word
}

// clipped quotes a text of the model's, and shortens it.
func clipped(s string) string {
	if len(s) > warnedName {
		s = strings.ToValidUTF8(s[:warnedName], "") + "…"
	}
	return strconv.QuoteToASCII(s)
}

// seconds returns a number of seconds, or the seconds of a duration such as "1m", and whether it is one or absent.
func (a args) seconds(name string) (n float64, ok bool) {
	if s, isText := a[name].(string); isText {
		if d, err := time.ParseDuration(strings.TrimSpace(s)); err == nil {
			return d.Seconds(), true
		}
	}
	n, ok = a.numeric(name)
	return n, ok && n == n
}

// warned adds a warning to a result.
func warned(r *sdk.CallToolResult, warning string) *sdk.CallToolResult {
	if warning == "" {
		return r
	}
	return withMember(r, "warning", warning, "warning: "+warning)
}

// withMember adds a member to a result, and a text for clients that show only texts.
func withMember(r *sdk.CallToolResult, name string, value any, said string) *sdk.CallToolResult {
	r.Content = append(r.Content, &sdk.TextContent{Text: said})
	if r.StructuredContent == nil {
		return r
	}
	object, err1 := json.Marshal(r.StructuredContent)
	member, err2 := json.Marshal(map[string]any{name: value})
	if err1 != nil || err2 != nil || !bytes.HasPrefix(object, []byte("{")) {
		return r
	}
	comma := ","
	if string(object) == "{}" {
		comma = ""
	}
	r.StructuredContent = json.RawMessage(string(member[:len(member)-1]) + comma + string(object[1:]))
	return r
}
