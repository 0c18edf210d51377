package proxy

import "bytes"

// format reads the token counts of one wire format.
type format struct {
	read  func(m *meter, text []byte) error // of a JSON response, or of an event's data
	marks []string                          // an event without any of these texts has neither counts nor an end
	last  string                            // data of the last event, if that is not JSON
	ends  bool                              // a stream has a last event
}

// formats are the wire formats, by name.
var formats = map[string]*format{
	"messages":  {read: (*meter).readMessages, marks: []string{`"message_start"`, `"message_delta"`, `"message_stop"`}, ends: true},
	"responses": {read: (*meter).readResponses, marks: []string{`"response.created"`, `"response.completed"`, `"response.incomplete"`, `"response.failed"`, `"web_search_call"`}, ends: true},
	"chat":      {read: (*meter).readChat, marks: []string{`"usage"`}, last: "[DONE]", ends: true},
	"generate":  {read: (*meter).readGenerate, marks: []string{`"usageMetadata"`}},
}

// unread is the format of a route with a gate whose format is not known: its requests are counted, and their tokens are
// not.
var unread = &format{read: func(*meter, []byte) error { return nil }}

// readMessages reads the Messages interface. Its counts of input exclude the cache. The counts in a message_delta are sums
// since the start.
func (m *meter) readMessages(text []byte) error {
	type usage struct {
		Input    count `json:"input_tokens"`
		Output   count `json:"output_tokens"`
		Creation count `json:"cache_creation_input_tokens"`
		Read     count `json:"cache_read_input_tokens"`
		Tools    struct {
			Searches count `json:"web_search_requests"`
		} `json:"server_tool_use"`
	}
	type message struct {
		ID    string `json:"id"`
		Model string `json:"model"`
		Usage *usage `json:"usage"`
	}
	e, err := parse[struct {
		message
		Type    string  `json:"type"`
		Message message `json:"message"`
	}](text)
	if err != nil {
		return err
	}
	of := e.message
	switch e.Type {
	case "message_stop":
		m.done = true
		return nil
	case "message_start":
		of = e.Message
	case "message", "message_delta":
	default:
		return nil
	}
	m.name(&m.use.RequestID, of.ID)
	m.name(&m.use.Model, of.Model)
	if of.Usage == nil {
		return nil
	}
	m.use.Searches = max(m.use.Searches, of.Usage.Tools.Searches.n)
	return m.count(tokens{input: of.Usage.Input, output: of.Usage.Output, creation: of.Usage.Creation, cached: of.Usage.Read}, false)
}

// readResponses reads the Responses interface. Its counts of input include the cache.
func (m *meter) readResponses(text []byte) error {
	type item struct {
		Type string `json:"type"`
	}
	type response struct {
		ID     string `json:"id"`
		Model  string `json:"model"`
		Output []item `json:"output"`
		Usage  *struct {
			Input   count `json:"input_tokens"`
			Output  count `json:"output_tokens"`
			Details struct {
				Cached count `json:"cached_tokens"`
			} `json:"input_tokens_details"`
			OutputDetails struct {
				Reasoning count `json:"reasoning_tokens"`
			} `json:"output_tokens_details"`
		} `json:"usage"`
	}
	e, err := parse[struct {
		response
		Type     string    `json:"type"`
		Item     item      `json:"item"`
		Response *response `json:"response"`
	}](text)
	if err != nil {
		return err
	}
	of := &e.response
	switch e.Type {
	case "":
	case "response.completed", "response.incomplete", "response.failed":
		m.done = true
		of = e.Response
	case "response.created":
		of = e.Response
	case "response.output_item.done":
		if e.Item.Type == "web_search_call" {
			m.use.Searches++
		}
		return nil
	default:
		return nil
	}
	if of == nil {
		return nil
	}
	searches := int64(0)
	for _, i := range of.Output {
		if i.Type == "web_search_call" {
			searches++
		}
	}
	m.use.Searches = max(m.use.Searches, searches)
	m.name(&m.use.RequestID, of.ID)
	m.name(&m.use.Model, of.Model)
	u := of.Usage
	if u == nil {
		return nil
	}
	return m.count(tokens{input: u.Input, output: u.Output, cached: u.Details.Cached, reasoning: u.OutputDetails.Reasoning}, true)
}

// readChat reads the Chat Completions interface. Its counts of input include the cache.
func (m *meter) readChat(text []byte) error {
	e, err := parse[struct {
		ID    string `json:"id"`
		Model string `json:"model"`
		Usage *struct {
			Input   count `json:"prompt_tokens"`
			Output  count `json:"completion_tokens"`
			Details struct {
				Cached count `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
			OutputDetails struct {
				Reasoning count `json:"reasoning_tokens"`
			} `json:"completion_tokens_details"`
		} `json:"usage"`
	}](text)
	if err != nil {
		return err
	}
	m.name(&m.use.RequestID, e.ID)
	m.name(&m.use.Model, e.Model)
	u := e.Usage
	if u == nil {
		return nil
	}
	return m.count(tokens{input: u.Input, output: u.Output, cached: u.Details.Cached, reasoning: u.OutputDetails.Reasoning}, true)
}

// readGenerate reads the GenerateContent interface, whose stream may also be a JSON array. Its counts of the prompt include the
// cache, and its counts of the candidates exclude thoughts.
func (m *meter) readGenerate(text []byte) error {
	type response struct {
		ID    string `json:"responseId"`
		Model string `json:"modelVersion"`
		Found []struct {
			Grounding struct {
				Queries []string `json:"webSearchQueries"`
			} `json:"groundingMetadata"`
		} `json:"candidates"`
		Usage *struct {
			Prompt     count `json:"promptTokenCount"`
			Tools      count `json:"toolUsePromptTokenCount"`
			Candidates count `json:"candidatesTokenCount"`
			Thoughts   count `json:"thoughtsTokenCount"`
			Cached     count `json:"cachedContentTokenCount"`
		} `json:"usageMetadata"`
	}
	type enclosed struct {
		response
		Response *response `json:"response"`
	}
	var all []enclosed
	var err error
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("[")) {
		all, err = parse[[]enclosed](text)
	} else {
		all = make([]enclosed, 1)
		all[0], err = parse[enclosed](text)
	}
	for _, e := range all {
		of := e.response
		if e.Response != nil {
			of = *e.Response
		}
		m.name(&m.use.RequestID, of.ID)
		m.name(&m.use.Model, of.Model)
		for _, f := range of.Found {
			m.use.Searches = max(m.use.Searches, int64(len(f.Grounding.Queries)))
		}
		if u := of.Usage; u != nil && err == nil {
			err = m.count(tokens{input: u.Prompt.plus(u.Tools), output: u.Candidates.plus(u.Thoughts), cached: u.Cached, reasoning: u.Thoughts}, true)
		}
	}
	return err
}
