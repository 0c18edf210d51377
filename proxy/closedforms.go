package proxy

// interfaces make the schemas of requests, by the names of formats. Each list has what the providers document and what
// the agents' programs send. A tool is known if the client runs it, or if it reaches nothing.
var interfaces = map[string]func() schema{"messages": messagesSchema, "responses": responsesSchema, "chat": chatSchema, "generate": generateSchema}

func messagesSchema() schema {
	var block schema
	blocks := list(func(at string, v jsonText) error { return block(at, v) }, scalar)
	source := typed(map[string]schema{"base64": object("type media_type data", nil), "text": object("type media_type data", nil),
		"content": object("type", map[string]schema{"content": blocks})})
	block = typed(with(
		all(free, "text thinking redacted_thinking tool_use tool_reference compaction"),
		map[string]schema{
			"image":         object("type cache_control", map[string]schema{"source": source}),
			"document":      object("type title context citations cache_control", map[string]schema{"source": source}),
			"search_result": object("type source title citations cache_control", map[string]schema{"content": blocks}),
			"tool_result":   object("type tool_use_id is_error cache_control", map[string]schema{"content": blocks}),
		}))
	tool := typed(all(free, none+" custom bash_20250124 text_editor_20250124 text_editor_20250429 text_editor_20250728 "+
		"computer_20250124 computer_20251124 memory_20250818 tool_search_tool_regex_20251119 tool_search_tool_bm25_20251119"))
	return object("max_tokens metadata stop_sequences stream temperature top_k top_p tool_choice thinking service_tier context_management "+
		"output_config output_format speed cache_control inference_geo", map[string]schema{
		"model": modelName, "system": blocks, "tools": list(tool, scalar),
		"messages": list(object("role", map[string]schema{"content": blocks}), scalar),
	})
}

func responsesSchema() schema {
	part := typed(with(
		all(free, "input_text output_text text refusal summary_text reasoning_text input_audio"),
		map[string]schema{
			"input_image": object("type detail", map[string]schema{"image_url": dataURL}),
			"input_file":  object("type filename detail", map[string]schema{"file_data": dataURL}),
		}))
	parts := list(part, scalar)
	message := object("type id role status phase", map[string]schema{"content": parts})
	output := object("type id call_id name namespace status caller success", map[string]schema{"output": parts})
	var tool schema
	tools := list(func(at string, v jsonText) error { return tool(at, v) }, scalar)
	tool = typed(with(
		all(free, "function custom local_shell apply_patch tool_search"),
		map[string]schema{"namespace": object("type name description", map[string]schema{"tools": tools})}))
	item := typed(with(
		all(free, "function_call custom_tool_call local_shell_call apply_patch_call apply_patch_call_output reasoning compaction "+
			"compaction_summary compaction_trigger context_compaction tool_search_call"),
		map[string]schema{none: message, "message": message, "function_call_output": output, "custom_tool_call_output": output,
			"local_shell_call_output": output,
			"additional_tools":        object("type id role", map[string]schema{"tools": tools}),
			"tool_search_output":      object("type id call_id execution status", map[string]schema{"tools": tools})}))
	choice := list(nothing, func(at string, v jsonText) error {
		if v.first() != '{' {
			return scalar(at, v)
		}
		return typed(with(all(free, "function custom"), map[string]schema{"allowed_tools": object("type mode", map[string]schema{"tools": tools})}))(at, v)
	})
	return object("instructions parallel_tool_calls reasoning store stream stream_options include service_tier prompt_cache_key "+
		"prompt_cache_retention text metadata client_metadata temperature top_p top_logprobs max_output_tokens max_tool_calls truncation user "+
		"safety_identifier context_management", map[string]schema{
		"model": modelName, "input": list(item, scalar), "tools": tools, "tool_choice": choice,
	})
}

func chatSchema() schema {
	part := typed(with(
		all(free, "text refusal input_audio thinking reasoning"),
		map[string]schema{
			"image_url": object("type cache_control", map[string]schema{"image_url": stringOr(dataURL, object("detail", map[string]schema{"url": dataURL}))}),
			"file":      object("type cache_control", map[string]schema{"file": object("filename", map[string]schema{"file_data": dataURL})}),
		}))
	message := object("role name tool_calls tool_call_id function_call refusal audio reasoning reasoning_content reasoning_details "+
		"reasoning_text cache_control", map[string]schema{"content": list(part, scalar)})
	tool := object("cache_control", map[string]schema{"type": word("function", "custom"), "function": free, "custom": free})
	return object("tool_choice functions function_call stream stream_options temperature top_p top_k min_p n max_tokens max_completion_tokens stop "+
		"presence_penalty frequency_penalty repetition_penalty logit_bias logprobs top_logprobs response_format seed user parallel_tool_calls "+
		"reasoning_effort verbosity store service_tier prompt_cache_key prompt_cache_retention safety_identifier modalities audio prediction "+
		"thinking", map[string]schema{
		"model": modelName, "messages": list(message, scalar), "tools": list(tool, scalar),
	})
}

// generateSchema knows the names of GenerateContent in both spellings, as the interface does.
func generateSchema() schema {
	inline := object("mimeType mime_type data displayName display_name", nil)
	result := object("id name willContinue will_continue scheduling response", map[string]schema{
		"parts": list(object("", map[string]schema{"inlineData": inline, "inline_data": inline}), nothing)})
	part := object("text thought thoughtSignature thought_signature functionCall function_call videoMetadata video_metadata mediaResolution "+
		"media_resolution", map[string]schema{
		"inlineData": inline, "inline_data": inline, "functionResponse": result, "function_response": result,
	})
	content := object("role", map[string]schema{"parts": list(part, part)})
	tool := object("functionDeclarations function_declarations", nil)
	config := object("functionCallingConfig function_calling_config", nil)
	fields := map[string]schema{
		"model": modelName, "contents": list(content, content), "systemInstruction": content, "system_instruction": content,
		"tools": list(tool, tool), "toolConfig": config, "tool_config": config,
	}
	const names = "generationConfig generation_config safetySettings safety_settings serviceTier service_tier store labels"
	request := object(names, fields)
	return object(names, with(map[string]schema{"generateContentRequest": request, "generate_content_request": request}, fields))
}
