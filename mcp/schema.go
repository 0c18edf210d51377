package mcp

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
)

// A property is one field of an object's schema.
type property struct {
	name     string
	schema   map[string]any
	required bool
	detail   bool   // a field of a result that only the reference describes
	hidden   bool   // an argument that is understood, and not in the list that clients get
	more     string // further sentences, for the reference
}

// properties are the fields of an object, in the order in which a client sees them: models tend to write arguments in
// that order.
type properties []property

// known are properties of a schema that clients do not get: see [property].hidden.
type known properties

// MarshalJSON writes an object, in the order of p.
func (p properties) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for _, one := range p {
		if one.hidden {
			continue
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		if _, ok := one.schema["properties"].(known); ok {
			one.schema = maps.Clone(one.schema)
			delete(one.schema, "properties")
		}
		name, err1 := json.Marshal(one.name)
		schema, err2 := json.Marshal(one.schema)
		if err1 != nil || err2 != nil {
			return nil, err2
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(schema)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// named returns the property of that name, or nil.
func (p properties) named(name string) *property {
	if i := slices.IndexFunc(p, func(one property) bool { return one.name == name }); i >= 0 {
		return &p[i]
	}
	return nil
}

// fieldsOf returns the properties of an object's schema.
func fieldsOf(schema map[string]any) properties {
	if k, ok := schema["properties"].(known); ok {
		return properties(k)
	}
	p, _ := schema["properties"].(properties)
	return p
}

// results returns the schema of an object with these properties and no others. The reference has it; clients get the
// shorter [published] one.
func results(props ...property) map[string]any {
	s := arguments(props...)
	s["additionalProperties"] = false
	return s
}

// arguments returns the schema of an object with these properties. Others are ignored.
func arguments(props ...property) map[string]any {
	var required []string
	for _, p := range props {
		if p.required {
			required = append(required, p.name)
		}
	}
	s := map[string]any{"type": "object", "properties": properties(props)}
	if required != nil {
		s["required"] = required
	}
	return s
}

// published returns a schema of results as clients get it: only types, without minor fields, which are permitted. Each
// model pays for a list of tools in each conversation, and few clients show it the schemas of results.
func published(schema map[string]any) map[string]any {
	if schema == nil {
		return nil
	}
	var brief []property
	for _, p := range fieldsOf(schema) {
		if p.detail {
			continue
		}
		p.schema = map[string]any{"type": p.schema["type"]}
		brief = append(brief, p)
	}
	return arguments(brief...)
}

// field returns a property of a basic type. An empty description is left out.
func field(name, kind, description string) property {
	s := map[string]any{"type": kind}
	if description != "" {
		s["description"] = description
	}
	return property{name: name, schema: s}
}

func (p property) must() property { p.required = true; return p }

func (p property) minor() property { p.detail = true; return p }

// minor marks several.
func minor(props ...property) []property {
	for i := range props {
		props[i].detail = true
	}
	return props
}

// with sets a keyword of JSON Schema in a copy of p.
func (p property) with(keyword string, value any) property {
	s := map[string]any{}
	for k, v := range p.schema {
		s[k] = v
	}
	s[keyword] = value
	p.schema = s
	return p
}

// described sets the description of a copy of p.
func (p property) described(text string) property { return p.with("description", text) }

// plain returns a copy of p without a description.
func (p property) plain() property {
	p = p.described("")
	delete(p.schema, "description")
	return p
}

// also adds sentences that only the reference has.
func (p property) also(text string) property { p.more = text; return p }

// listOf returns a property that is an array of strings.
func listOf(name, description string) property {
	return field(name, "array", description).with("items", map[string]any{"type": "string"})
}

// tableOf returns a property that is an object of strings.
func tableOf(name, description string) property {
	return field(name, "object", description).with("additionalProperties", map[string]any{"type": "string"})
}
