package mcp

// A property is one field of an object's schema. Properties are listed in display order.
type property struct {
	name     string
	schema   map[string]any
	required bool
}

// results returns the schema of an object with these properties and no others.
func results(props ...property) map[string]any {
	s := arguments(props...)
	s["additionalProperties"] = false
	return s
}

// arguments returns the schema of an object with these properties. Others are ignored.
func arguments(props ...property) map[string]any {
	fields, required := map[string]any{}, []string{}
	for _, p := range props {
		fields[p.name] = p.schema
		if p.required {
			required = append(required, p.name)
		}
	}
	return map[string]any{"type": "object", "properties": fields, "required": required}
}

// field returns a property of a basic type.
func field(name, kind, description string) property {
	return property{name: name, schema: map[string]any{"type": kind, "description": description}}
}

func (p property) must() property { p.required = true; return p }

// with adds a keyword of JSON Schema to a copy of p.
func (p property) with(keyword string, value any) property {
	s := map[string]any{keyword: value}
	for k, v := range p.schema {
		s[k] = v
	}
	p.schema = s
	return p
}

// listOf returns a property that is an array of strings.
func listOf(name, description string) property {
	return field(name, "array", description).with("items", map[string]any{"type": "string"})
}

// tableOf returns a property that is an object of strings.
func tableOf(name, description string) property {
	return field(name, "object", description).with("additionalProperties", map[string]any{"type": "string"})
}
