package proxy

import "bytes"

// format reads the token counts of one wire format.
type format struct {
	read  func(m *meter, text []byte) error // of a JSON response, or of an event's data
	marks []string                          // an event without any of these texts has neither counts nor an end
	last  string                            // data of the last event, if that is no JSON
	ends  bool                              // a stream has a last event
}

// formats are the wire formats, by name.
var formats = map[string]*format{
	"messages":  {read: readMessages, marks: []string{`"message_start"`, `"message_delta"`, `"message_stop"`}, ends: true},
	"responses": {read: readResponses, marks: []string{`"response.created"`, `"response.completed"`, `"response.incomplete"`, `"response.failed"`}, ends: true},
	"chat":      {read: readChat, marks: []string{`"usage"`}, last: "[DONE]", ends: true},
	"generate":  {read: readGenerate, marks: []string{`"usageMetadata"`}},
}

// readMessages reads the Messages interface. Its counts of input exclude the cache, and those of a message_delta are
// sums since the start.
func readMessages(m *meter, text []byte) error {
	type usage struct {
		Input    int64 `json:"input_tokens"`
		Output   int64 `json:"output_tokens"`
		Creation int64 `json:"cache_creation_input_tokens"`
		Read     int64 `json:"cache_read_input_tokens"`
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
	return m.count(tokens{input: of.Usage.Input, output: of.Usage.Output, creation: of.Usage.Creation, cached: of.Usage.Read}, false)
}

// readResponses reads the Responses interface. Its counts of input include the cache.
func readResponses(m *meter, text []byte) error {
	type response struct {
		ID    string `json:"id"`
		Model string `json:"model"`
		Usage *struct {
			Input   int64 `json:"input_tokens"`
			Output  int64 `json:"output_tokens"`
			Details struct {
				Cached int64 `json:"cached_tokens"`
			} `json:"input_tokens_details"`
			OutputDetails struct {
				Reasoning int64 `json:"reasoning_tokens"`
			} `json:"output_tokens_details"`
		} `json:"usage"`
	}
	e, err := parse[struct {
		response
		Type     string    `json:"type"`
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
	default:
		return nil
	}
	if of == nil {
		return nil
	}
	m.name(&m.use.RequestID, of.ID)
	m.name(&m.use.Model, of.Model)
	u := of.Usage
	if u == nil {
		return nil
	}
	return m.count(tokens{input: u.Input, output: u.Output, cached: u.Details.Cached, reasoning: u.OutputDetails.Reasoning}, true)
}

// readChat reads the Chat Completions interface. Its counts of input include the cache.
func readChat(m *meter, text []byte) error {
	e, err := parse[struct {
		ID    string `json:"id"`
		Model string `json:"model"`
		Usage *struct {
			Input   int64 `json:"prompt_tokens"`
			Output  int64 `json:"completion_tokens"`
			Details struct {
				Cached int64 `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
			OutputDetails struct {
				Reasoning int64 `json:"reasoning_tokens"`
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

// readGenerate reads the GenerateContent interface, whose stream may also be a JSON array. Its counts of the prompt
// include the cache; those of the candidates exclude thoughts.
func readGenerate(m *meter, text []byte) error {
	type response struct {
		ID    string `json:"responseId"`
		Model string `json:"modelVersion"`
		Usage *struct {
			Prompt     int64 `json:"promptTokenCount"`
			Tools      int64 `json:"toolUsePromptTokenCount"`
			Candidates int64 `json:"candidatesTokenCount"`
			Thoughts   int64 `json:"thoughtsTokenCount"`
			Cached     int64 `json:"cachedContentTokenCount"`
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
		if u := of.Usage; u != nil && err == nil {
			err = m.count(tokens{input: u.Prompt + u.Tools, output: u.Candidates + u.Thoughts, cached: u.Cached, reasoning: u.Thoughts}, true)
		}
	}
	return err
}
