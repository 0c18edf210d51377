package browser

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"demesne/internal/text"
)

// Tool is a tool of a browser. The names are those that models know from other systems.
type Tool struct {
	Name, About string
	Args        []Arg
	theirs      string         // the tool of playwright-mcp
	fixed       map[string]any // arguments of it that callers do not choose, and defaults
}

// Arg is an argument of a tool.
type Arg struct {
	Name, Kind, About string // Kind is a type of JSON Schema; array: of strings
	Required          bool
	theirs            string // its name in playwright-mcp
}

const (
	closeTool = "close"        // ends the browser: it is not passed on
	waitTool  = "browser_wait" // with a selector it is an evaluation: playwright-mcp waits for texts only
)

// selector is the argument that names an element.
var selector = Arg{Name: "selector", Kind: "string", About: "A ref of browser_snapshot, such as e12, or a CSS selector.", theirs: "target"}

// Tools returns the tools of a browser.
func Tools() []Tool {
	element := selector
	element.Required = true
	part := selector
	part.About = "Default: the page."
	return []Tool{
		{"browser_navigate", "Open an address in the browser.", []Arg{{"url", "string", "http, https, data, or file: of the sandbox, such as file:///out/a.html.", true, "url"}}, "browser_navigate", nil},
		{"browser_snapshot", "Show the page as text: its elements, with refs for the other tools.", []Arg{part}, "browser_snapshot", nil},
		{"browser_screenshot", "Show the page as a picture, and save it to /out.", []Arg{{"full_page", "boolean", "", false, "fullPage"}, part}, "browser_take_screenshot", nil},
		{"browser_click", "Click on an element.", []Arg{element, {"double", "boolean", "", false, "doubleClick"}}, "browser_click", nil},
		{"browser_type", "Type text into an element.", []Arg{element, {"text", "string", "", true, "text"}, {"submit", "boolean", "Press Enter after it.", false, "submit"}}, "browser_type", nil},
		{"browser_press_key", "Press a key.", []Arg{{"key", "string", "Such as Enter, ArrowDown or a.", true, "key"}}, "browser_press_key", nil},
		{"browser_select", "Select options of a list.", []Arg{element, {"values", "array", "", true, "values"}}, "browser_select_option", nil},
		{"browser_scroll", "Scroll by pixels.", []Arg{{"x", "number", "", false, "deltaX"}, {"y", "number", "", false, "deltaY"}}, "browser_mouse_wheel", map[string]any{"deltaX": 0, "deltaY": 0}},
		{waitTool, "Wait until an element or a text is there, until a text disappears, or some seconds.", []Arg{{"selector", "string", "A CSS selector.", false, "selector"}, {"text", "string", "", false, "text"}, {"text_gone", "string", "", false, "textGone"}, {"seconds", "number", "At most 30.", false, "time"}}, "browser_wait_for", nil},
		{"browser_evaluate", "Evaluate JavaScript in the page.", []Arg{{"expression", "string", "An expression, or a function such as () => document.title; with selector, of the element.", true, "function"}, selector}, "browser_evaluate", nil},
		{"browser_get_html", "Return the HTML of the page or an element.", []Arg{part}, "browser_evaluate", map[string]any{"function": "(e) => e.outerHTML", "target": "html"}},
		{"browser_console", "Return the messages of the page's console.", nil, "browser_console_messages", map[string]any{"level": "info"}},
		{"browser_tabs", "List, open, select or close tabs, with their addresses and titles.", []Arg{{"action", "string", "list, new, select or close.", true, "action"}, {"index", "number", "", false, "index"}, {"url", "string", "", false, "url"}}, "browser_tabs", nil},
		{"browser_back", "Go back to the page before.", nil, "browser_navigate_back", nil},
		{"browser_dialog", "Answer a dialog of the page.", []Arg{{"accept", "boolean", "", true, "accept"}, {"text", "string", "", false, "promptText"}}, "browser_handle_dialog", nil},
		{"browser_upload", "Choose files for a file dialog that a click opened.", []Arg{{"paths", "array", "In the sandbox.", true, "paths"}}, "browser_file_upload", nil},
		{"browser_pdf", "Save the page as PDF to /out.", nil, "browser_pdf_save", nil},
		{"browser_close", "End the browser. Its sandbox stays until sandbox_destroy.", nil, closeTool, nil},
	}
}

// schemes are the schemes of addresses that callers may open. Others control the browser itself, such as chrome.
var schemes = []string{"http", "https", "data", "file", "about"}

// translate returns the tool of playwright-mcp and its arguments. Arguments that the tool does not have are ignored.
func translate(name string, args map[string]any) (theirs string, values map[string]any, err error) {
	all := Tools()
	i := slices.IndexFunc(all, func(t Tool) bool { return t.Name == name })
	if i < 0 {
		return "", nil, fmt.Errorf("no tool %q", text.SafeLine(name))
	}
	values = map[string]any{}
	maps.Copy(values, all[i].fixed)
	for _, a := range all[i].Args {
		v, given := args[a.Name]
		if !given || v == nil {
			if a.Required {
				return "", nil, fmt.Errorf("required argument %q not found", a.Name)
			}
			continue
		}
		if !a.fits(v) {
			return "", nil, fmt.Errorf("argument %q is not a %s", a.Name, a.Kind)
		}
		if a.Name == "url" {
			if err := checkURL(v.(string)); err != nil {
				return "", nil, err
			}
		}
		values[a.theirs] = v
	}
	if selector, ok := values["selector"].(string); ok && name == waitTool {
		return "browser_evaluate", map[string]any{"function": awaiting(selector)}, nil
	}
	return all[i].theirs, values, nil
}

// awaiting returns a function of JavaScript that waits until an element matches a selector.
func awaiting(selector string) string {
	quoted, _ := json.Marshal(selector) // a string of JavaScript too
	return fmt.Sprintf(`async () => {
  for (const end = Date.now() + 30000; !document.querySelector(%[1]s); await new Promise((r) => setTimeout(r, 100)))
    if (Date.now() > end) throw new Error("no element matches " + %[1]s);
  return "found";
}`, quoted)
}

// fits reports whether a value of JSON has the kind of an argument.
func (a Arg) fits(v any) bool {
	switch v := v.(type) {
	case string:
		return a.Kind == "string"
	case bool:
		return a.Kind == "boolean"
	case float64:
		return a.Kind == "number"
	case []any:
		return a.Kind == "array" && !slices.ContainsFunc(v, func(one any) bool { _, ok := one.(string); return !ok })
	}
	return false
}

// checkURL refuses an address that controls the browser itself. An address such as localhost:8000 has no scheme.
func checkURL(address string) error {
	scheme, _, found := strings.Cut(strings.ToLower(strings.TrimSpace(address)), ":")
	if !found || slices.Contains(schemes, scheme) || strings.ContainsAny(scheme, "/?#.[") || scheme == "localhost" {
		return nil
	}
	return fmt.Errorf("url: %q is not one of %s", text.SafeLine(scheme), strings.Join(schemes, ", "))
}
