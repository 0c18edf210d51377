package proxy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"demesne/internal/lazy"
)

// A model's provider can reach other hosts for its client: by a web search, by a connector to MCP servers, by code that
// it runs, or by an image that it fetches from a URL. A request carries data of the sandbox there. So a closed route
// forwards only requests of which each part is known to do nothing of that kind. A schema lists what is known; other
// names and types are refused, as a later version of an interface may have any.

// A schema returns why a value at that place is refused, or nil.
type schema func(at string, v jsonText) error

// closed returns why the body of a request must not be forwarded on a closed route, or nil.
func (s schema) closed(body []byte) error {
	body = trimmed(body)
	if len(body) == 0 {
		return nil
	}
	err := document(body)
	if err == nil {
		err = s("", jsonText(body))
	}
	if err != nil {
		return fmt.Errorf("the network of this sandbox is closed, and the body might make the model's provider reach other hosts: %w", err)
	}
	return nil
}

func unlisted(at string, what any) error {
	if v, ok := what.(jsonText); ok {
		what = string(v[:min(len(v), 80)])
	}
	return fmt.Errorf("%s: %.80v is not known", at, what)
}

// free accepts values that only describe what the model generates or has generated.
func free(string, jsonText) error { return nil }

// scalar accepts all but objects and arrays.
func scalar(at string, v jsonText) error {
	if c := v.first(); c == '{' || c == '[' {
		return unlisted(at, "an object or array here")
	}
	return nil
}

// object accepts null and an object with some of the named members. names are members that may have any value.
func object(names string, special map[string]schema) schema {
	known := map[string]bool{}
	for _, name := range strings.Fields(names) {
		known[name] = true
	}
	return func(at string, v jsonText) error {
		return eachMember(at, v, func(at, name string, m jsonText) error {
			switch {
			case special[name] != nil:
				return special[name](at, m)
			case known[name]:
				return nil
			}
			return unlisted(at, "this member")
		})
	}
}

func eachMember(at string, v jsonText, check func(at, name string, m jsonText) error) error {
	switch v.first() {
	case 'n':
		return nil
	case '{':
	default:
		return unlisted(at, "a value that is not an object")
	}
	all, err := v.members()
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	for name, m := range all {
		if err := check(strings.TrimPrefix(fmt.Sprintf("%s.%.40s", at, name), "."), name, m); err != nil {
			return err
		}
	}
	return nil
}

// list accepts null and an array of such elements. What it accepts in place of an array, such as a string, is or.
func list(element, or schema) schema {
	return func(at string, v jsonText) error {
		switch c := v.first(); {
		case c == 'n':
			return nil
		case c != '[':
			return or(at, v)
		}
		i := 0
		for e := range v.elements() {
			if err := element(fmt.Sprintf("%s[%d]", at, i), e); err != nil {
				return err
			}
			i++
		}
		return nil
	}
}

// none is the type of an object without one.
const none = "none"

// typed accepts an object whose member "type" names one of the schemas.
func typed(schemas map[string]schema) schema {
	return func(at string, v jsonText) error {
		kind, err := typeOf(at, v)
		switch {
		case err != nil:
			return err
		case schemas[kind] == nil:
			return unlisted(at+".type", fmt.Sprintf("%q", kind))
		}
		return schemas[kind](at, v)
	}
}

// typeOf returns the member "type" of an object; null counts as missing.
func typeOf(at string, v jsonText) (kind string, err error) {
	if v.first() != '{' {
		return "", unlisted(at, "a value that is not an object")
	}
	all, err := v.members()
	if err != nil {
		return "", fmt.Errorf("%s: %w", at, err)
	}
	t := all["type"]
	if t == nil || t.first() == 'n' {
		return none, nil
	}
	kind, ok := t.text()
	if !ok || kind == none {
		return "", unlisted(at+".type", t)
	}
	return kind, nil
}

// all gives each of the types the same schema.
func all(s schema, types string) map[string]schema {
	schemas := map[string]schema{}
	for _, name := range strings.Fields(types) {
		schemas[name] = s
	}
	return schemas
}

// with adds the schemas in more to schemas, and returns it.
func with(schemas map[string]schema, more map[string]schema) map[string]schema {
	for name, s := range more {
		schemas[name] = s
	}
	return schemas
}

// word accepts one of the strings.
func word(words ...string) schema {
	return func(at string, v jsonText) error {
		if s, ok := v.text(); !ok || !slices.Contains(words, s) {
			return unlisted(at, v)
		}
		return nil
	}
}

// stringOr gives a string one schema, and other values another one.
func stringOr(s, other schema) schema {
	return func(at string, v jsonText) error {
		if v.first() == '"' {
			return s(at, v)
		}
		return other(at, v)
	}
}

// nothing accepts no value.
func nothing(at string, v jsonText) error { return unlisted(at, v) }

// errURL is the error of content that a provider would fetch.
var errURL = errors.New("a URL that is not data: the provider would fetch it")

// dataURL accepts null and a URL that contains its data.
func dataURL(at string, v jsonText) error {
	if v.first() == 'n' {
		return nil
	}
	if s, ok := v.text(); !ok || !strings.HasPrefix(s, "data:") {
		return fmt.Errorf("%s: %w", at, errURL)
	}
	return nil
}

// searching are words in the names of models that search the web for each answer, of several vendors.
var searching = lazy.Regexp{Expr: `(?i)search|online|sonar|research|compound|browse|grounded`}

// modelName accepts the name of a model, unless it is one of those.
func modelName(at string, v jsonText) error {
	if s, ok := v.text(); !ok || searching.Get().MatchString(s) {
		return fmt.Errorf("%s: %.80s may search the web for its answers", at, []byte(v))
	}
	return nil
}
