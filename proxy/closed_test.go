package proxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// Each interface has a minimal request, as a format for one member more.
var minimal = map[string]string{
	"messages":  `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"hi"}]%s}`,
	"responses": `{"model":"m","input":"hi"%s}`,
	"chat":      `{"model":"m","messages":[{"role":"user","content":"hi"}]%s}`,
	"generate":  `{"contents":[{"role":"user","parts":[{"text":"hi"}]}]%s}`,
}

// TestEscapeN38Closed checks that a closed route forwards no request that makes the provider of a model reach other
// hosts. Requests of which a part is not known are refused too.
func TestEscapeN38Closed(t *testing.T) {
	for usage, members := range map[string][]string{
		"messages": {
			`"tools":[{"type":"web_search_20250305","name":"web_search"}]`, `"tools":[{"type":"web_fetch_20250910","name":"web_fetch"}]`,
			`"tools":[{"name":"a","input_schema":{}},{"type":"code_execution_20250825","name":"code_execution"}]`, `"tools":[{"type":"mcp_toolset"}]`,
			`"tools":[{"type":"later_20270101"}]`, `"tools":[{"type":["custom"]}]`, `"tools":[{"type":"none"}]`, `"tools":{"type":"web_search_20250305"}`, `"tools":[[{"type":"custom"}]]`,
			`"mcp_servers":[{"type":"url","url":"https://x.test","name":"x"}]`, `"container":{"skills":[]}`, `"later":1`, `"Tools":[]`, `"\u0074ools":[{"\u0074ype":"web_\u0073earch_20250305"}]`,
			`"tools":[],"tools":[{"type":"web_search_20250305"}]`, `"tools":[{"type":"web_search_20250305","type":"custom"}]`, `"model":"x"`,
			`"system":[{"type":"image","source":{"type":"url","url":"https://x.test/?data"}}]`,
		},
		"responses": {
			`"tools":[{"type":"web_search"}]`, `"tools":[{"type":"web_search_preview"}]`, `"tools":[{"type":"mcp","server_label":"x","server_url":"https://x.test"}]`,
			`"tools":[{"type":"code_interpreter","container":{"type":"auto"}}]`, `"tools":[{"type":"file_search"}]`, `"tools":[{"type":"computer_use_preview"}]`,
			`"tools":[{"type":"image_generation"}]`, `"tools":[{"type":"shell","environment":{"type":"container_auto"}}]`, `"tools":[{"type":"later"}]`, `"tools":[{"name":"no type"}]`,
			`"tools":[{"type":"namespace","name":"a","tools":[{"type":"namespace","tools":[{"type":"mcp"}]}]}]`, `"tool_choice":{"type":"web_search_preview"}`,
			`"tool_choice":{"type":"allowed_tools","tools":[{"type":"mcp"}]}`, `"prompt":{"id":"p"}`, `"conversation":"c"`, `"previous_response_id":"r"`, `"later":{}`,
		},
		"chat": {
			`"web_search_options":{}`, `"tools":[{"type":"web_search"}]`, `"tools":[{"type":"mcp"}]`, `"tools":[{"function":{}},{"type":"function","later":1}]`, `"plugins":[{"id":"web"}]`,
			`"search_parameters":{"mode":"on"}`, `"enable_search":true`, `"api_base":"https://x.test"`, `"base_url":"https://x.test"`, `"models":["m:online"]`, `"provider":{}`, `"extra_body":{"a":1}`,
		},
		"generate": {
			`"tools":[{"googleSearch":{}}]`, `"tools":[{"google_search":{}}]`, `"tools":[{"urlContext":{}}]`, `"tools":[{"url_context":{}}]`, `"tools":[{"codeExecution":{}}]`, `"tools":[{"googleMaps":{}}]`,
			`"tools":[{"functionDeclarations":[],"googleSearchRetrieval":{}}]`, `"tools":{"google_search":{}}`, `"cachedContent":"cachedContents/x"`, `"later":1`, `"toolConfig":{"retrievalConfig":{}}`,
			`"generateContentRequest":{"tools":[{"googleSearch":{}}]}`, `"generateContentRequest":{"generateContentRequest":{}}`, `"systemInstruction":{"parts":[{"fileData":{"fileUri":"https://x.test"}}]}`,
		},
	} {
		for _, member := range members {
			if err := interfaces[usage]().closed(fmt.Appendf(nil, minimal[usage], ","+member)); err == nil {
				t.Errorf("%s: %s is forwarded", usage, member)
			}
		}
	}
}

// contents are formats for one part of the content of a message.
var contents = map[string][]string{
	"messages": {
		`{"model":"m","messages":[{"role":"user","content":[%s]}]}`,
		`{"model":"m","messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[%s]}]}]}`,
		`{"model":"m","messages":[{"role":"user","content":[{"type":"document","source":{"type":"content","content":[%s]}}]}]}`,
	},
	"responses": {
		`{"model":"m","input":[{"role":"user","content":[%s]}]}`, `{"model":"m","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":""},%s]}]}`,
		`{"model":"m","input":[{"type":"function_call_output","call_id":"c","output":[%s]}]}`, `{"model":"m","input":[{"type":"custom_tool_call_output","output":[%s]}]}`,
	},
	"chat": {`{"model":"m","messages":[{"role":"user","content":[%s]}]}`, `{"model":"m","messages":[{"role":"tool","content":[{"type":"text","text":""},%s]}]}`},
	"generate": {
		`{"contents":[{"parts":[%s]}]}`, `{"contents":{"parts":%s}}`, `{"system_instruction":{"parts":[{"text":""},%s]}}`,
		`{"contents":[{"parts":[{"functionResponse":{"name":"f","response":{},"parts":[%s]}}]}]}`,
	},
}

// TestEscapeN38Content checks that a closed route forwards no content that the provider fetches, wherever it stands.
func TestEscapeN38Content(t *testing.T) {
	for usage, parts := range map[string][]string{
		"messages": {
			`{"type":"image","source":{"type":"url","url":"https://x.test/?data"}}`, `{"type":"document","source":{"type":"url","url":"https://x.test/"}}`,
			`{"type":"image","source":{"type":"file","file_id":"f"}}`, `{"type":"image","source":{"url":"https://x.test/"}}`, `{"type":"image","source":"https://x.test/"}`,
			`{"type":"image","source":{"type":"base64","data":"","url":"https://x.test/"}}`, `{"type":"image","source":{"type":"url","type":"base64"}}`, `{"type":"server_tool_use","name":"web_fetch"}`,
			`{"type":"mcp_tool_use"}`, `{"type":"container_upload","file_id":"f"}`, `{"type":"later"}`, `{"text":"no type"}`, `{"type":"image","source":{"type":"u\u0072l"}}`,
		},
		"responses": {
			`{"type":"input_image","image_url":"https://x.test/?data"}`, `{"type":"input_image","image_url":" data:"}`, `{"type":"input_image","image_url":{"url":"https://x.test"}}`, `{"type":"input_image","file_id":"f"}`,
			`{"type":"input_file","file_url":"https://x.test/"}`, `{"type":"input_file","file_data":"https://x.test/"}`, `{"type":"input_video"}`,
		},
		"chat": {
			`{"type":"image_url","image_url":{"url":"https://x.test/?data"}}`, `{"type":"image_url","image_url":"http://x.test"}`, `{"type":"image_url","image_url":{"url":"DATA:x"}}`,
			`{"type":"image_url","image_url":{"url":"data:","URL":"https://x.test"}}`, `{"type":"file","file":{"file_id":"f"}}`, `{"type":"file","file":{"file_data":"https://x.test"}}`, `{"type":"video_url","video_url":{}}`,
		},
		"generate": {
			`{"fileData":{"fileUri":"https://x.test/?data"}}`, `{"file_data":{"file_uri":"https://x.test"}}`, `{"text":"a","fileData":{}}`, `{"inlineData":{"fileUri":"x"}}`, `{"executableCode":{}}`,
		},
	} {
		for _, place := range contents[usage] {
			for _, part := range parts {
				if err := interfaces[usage]().closed(fmt.Appendf(nil, place, part)); err == nil {
					t.Errorf("%s: %s is forwarded in %s", usage, part, place)
				}
			}
		}
	}
	for _, input := range []string{`{"type":"mcp_approval_response","approve":true}`, `{"type":"additional_tools","tools":[{"type":"namespace","tools":[{"type":"mcp"}]}]}`, `{"type":"tool_search_output","tools":[{"type":"web_search"}]}`, `{"type":"web_search_call"}`, `{"type":"mcp_call"}`, `{"type":"item_reference","id":"i"}`, `{"type":"code_interpreter_call"}`} {
		if err := interfaces["responses"]().closed(fmt.Appendf(nil, `{"model":"m","input":[%s]}`, input)); err == nil {
			t.Errorf("%s is forwarded", input)
		}
	}
	for _, model := range []string{`"gpt-4o-search-preview"`, `"vendor/model:online"`, `"sonar-pro"`, `"o4-mini-deep-research"`, `["m"]`, `{}`, `"gpt-4o-\u0053earch"`} {
		for usage := range minimal {
			if err := interfaces[usage]().closed(fmt.Appendf(nil, `{"model":%s}`, model)); err == nil {
				t.Errorf("%s: model %s is forwarded", usage, model)
			}
		}
	}
}

// TestClosedDocument checks that a closed route refuses what parsers read differently.
func TestClosedDocument(t *testing.T) {
	for _, body := range []string{"[]", `"x"`, "1", "{", `{}{}`, `{} x`, "\ufeff{}", "{\"model\":\"\xff\"}", "\xff\xfe{\x00}\x00", `{"model":"a","model":"b"}`, "model=a", strings.Repeat("[", 20000) + strings.Repeat("]", 20000)} {
		for usage := range interfaces {
			if err := interfaces[usage]().closed([]byte(body)); err == nil {
				t.Errorf("%s: %.40q is forwarded", usage, body)
			}
		}
	}
}

// TestClosedKnown checks that requests without such parts are forwarded.
func TestClosedKnown(t *testing.T) {
	for usage, bodies := range map[string][]string{
		"messages": {
			`{"model":"claude-sonnet-5","max_tokens":1,"stream":true,"metadata":{"user_id":"u"},"thinking":{"type":"adaptive"},"context_management":{"edits":[]},"output_config":{"effort":"high"},
			"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],"tools":[{"name":"Bash","description":"url","input_schema":{"type":"object","properties":{"type":{"type":"web_search"}}}},{"type":"custom","name":"b"},{"type":"bash_20250124","name":"bash"}],
			"messages":[{"role":"user","content":[{"type":"text","text":"https://x.test"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}]},
			{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"tool_use","id":"t","name":"Fetch","input":{"type":"url","url":"https://x.test","a":1,"a":2}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"x"},{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"x"}]}]}]}`,
			"", " \n",
		},
		"responses": {
			`{"model":"gpt-5.5","instructions":"i","stream":true,"store":false,"include":["reasoning.encrypted_content"],"reasoning":{"effort":"high"},"prompt_cache_key":"k","text":{"verbosity":"low"},"tool_choice":"auto","parallel_tool_calls":true,
			"tools":[{"type":"function","name":"f","parameters":{"type":"object"}},{"type":"custom","name":"apply_patch","format":{"type":"grammar"}},{"type":"namespace","name":"mcp__demesne","tools":[{"type":"function","name":"g"}]}],
			"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"https://x.test"},{"type":"input_image","image_url":"data:image/png;base64,AA=="}]},{"role":"user","content":"x"},
			{"type":"reasoning","summary":[],"encrypted_content":"e"},{"type":"additional_tools","role":"developer","tools":[{"type":"namespace","name":"n","tools":[{"type":"custom","name":"c"}]}]},{"type":"tool_search_output","call_id":"c","tools":[]},{"type":"function_call","name":"f","arguments":"{}","call_id":"c"},{"type":"function_call_output","call_id":"c","output":"o"}]}`,
		},
		"chat": {
			`{"model":"gpt-5.5","stream":true,"stream_options":{"include_usage":true},"max_tokens":1,"tool_choice":"auto","reasoning_effort":"high","tools":[{"type":"function","function":{"name":"f","parameters":{}}}],
			"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"t"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA==","detail":"low"}}]},
			{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"o"}]}`,
		},
		"generate": {
			`{"contents":[{"role":"user","parts":[{"text":"https://x.test"},{"inlineData":{"mimeType":"image/png","data":"AA=="}}]},{"role":"model","parts":[{"functionCall":{"name":"f","args":{"fileData":1}},"thoughtSignature":"s"}]},
			{"role":"user","parts":[{"functionResponse":{"name":"f","response":{"output":"o"}}}]}],"systemInstruction":{"parts":[{"text":"s"}]},"tools":[{"functionDeclarations":[{"name":"f"}]}],"toolConfig":{"functionCallingConfig":{"mode":"AUTO"}},"generationConfig":{"temperature":1}}`,
			`{"generateContentRequest":{"model":"models/m","contents":[]}}`,
		},
	} {
		for _, body := range bodies {
			if err := interfaces[usage]().closed([]byte(body)); err != nil {
				t.Errorf("%s: %v", usage, err)
			}
		}
	}
}

// TestEscapeN38Route checks what a closed route forwards: which headers, and no body that it cannot check.
func TestEscapeN38Route(t *testing.T) {
	s := newService(t, false, Route{Usage: "messages", Closed: true, Headers: []string{"anthropic-version", "X-Stainless-*"}}, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%d %s", len(b), b)
	})
	good := fmt.Sprintf(minimal["messages"], "")
	resp, body := s.call("POST", "/v1/messages", good, "Anthropic-Version", "1", "x-stainless-lang", "js", "Content-Type", "application/json; charset=utf-7",
		"X-Http-Method-Override", "GET", "X-Original-Url", "/x", "X-Portkey-Custom-Host", "https://x.test", "Helicone-Target-Url", "https://x.test", "X-Forwarded-Host", "x.test")
	if resp.StatusCode != 200 || body != fmt.Sprintf("%d %s", len(good), good) {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	want := http.Header{"Authorization": {"Bearer " + realToken}, "X-Version": {"2026-01-02"}, "Anthropic-Version": {"1"}, "X-Stainless-Lang": {"js"},
		"Content-Type": {"application/json"}, "Accept-Encoding": {"identity"}, "Content-Length": {fmt.Sprint(len(good))}, "User-Agent": {"Go-http-client/1.1"}}
	for name, values := range s.seen[0].Header {
		if want.Get(name) != values[0] {
			t.Errorf("the server got %s: %q", name, values)
		}
	}
	if len(s.seen[0].Header) != len(want) {
		t.Errorf("the server got %v", s.seen[0].Header)
	}
	for name, c := range map[string]struct {
		body   string
		header []string
		code   int
		says   string
	}{
		"a tool of the provider": {body: fmt.Sprintf(minimal["messages"], `,"tools":[{"type":"web_search_20250305","name":"w"}]`), code: 400, says: `tools[0].type: \"web_search_20250305\"`},
		"compressed":             {body: good, header: []string{"Content-Encoding", "gzip"}, code: 415, says: "compressed"},
		"compressed twice":       {body: good, header: []string{"Content-Encoding", "identity, zstd"}, code: 415, says: "compressed"},
		"no JSON":                {body: "model=m", header: []string{"Content-Type", "application/x-www-form-urlencoded"}, code: 400, says: "not one JSON value"},
		"too large":              {body: strings.Repeat(" ", mostClosed+1), code: 413, says: "larger than"},
	} {
		resp, body := s.call("POST", "/v1/messages", c.body, c.header...)
		if resp.StatusCode != c.code || !strings.Contains(body, c.says) || !strings.Contains(body, `"type":"error"`) {
			t.Errorf("%s: %d %s", name, resp.StatusCode, body)
		}
	}
	if len(s.seen) != 1 {
		t.Errorf("the server got %d requests", len(s.seen))
	}
}
