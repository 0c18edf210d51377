package daemon

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/google/jsonschema-go/jsonschema"

	"demesne/proxy/policy"
)

func policySchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	raw, err := os.ReadFile("../../docs/reference/schema/policy.json")
	if err != nil {
		t.Fatal(err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	return &s
}

// TestSchemaKeys checks that the published schema has the keys that parsePolicy knows, at each level. The error about
// an unknown key lists them.
func TestSchemaKeys(t *testing.T) {
	s := policySchema(t)
	for text, of := range map[string]*jsonschema.Schema{"nosuch = 1": s, "[[rule]]\nnosuch = 1\nallow = 'a.test'": s.Defs["rule"]} {
		_, err := parsePolicy("p.toml", text)
		if err == nil {
			t.Fatalf("%q: no error", text)
		}
		_, list, _ := strings.Cut(err.Error(), "not one of ")
		if got := strings.Join(slices.Sorted(maps.Keys(of.Properties)), ", "); got != list {
			t.Errorf("the schema has the keys %s, and parsePolicy %s", got, list)
		}
		for name, p := range of.Properties {
			if p.Description == "" {
				t.Errorf("%s: no description", name)
			}
		}
	}
	var modes []string
	for _, m := range s.Properties["mode"].Enum {
		modes = append(modes, m.(string))
	}
	if names := policy.ModeNames(); strings.Join(modes, " ") != strings.Join(names, " ") {
		t.Errorf("the schema has the modes %q, and parsePolicy %q", modes, names)
	}
}

// TestSchemaAgrees checks that the schema accepts what parsePolicy accepts, and rejects files of a wrong form. The
// schema does not know which names and modes exist, so it may accept more.
func TestSchemaAgrees(t *testing.T) {
	schema, err := policySchema(t).Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text string
		ok   bool
	}{
		{asTOML, true},
		{"", true},
		{"mode = 'open'", true},
		{"mode = 'none'", true},
		{"allow = ['a.test:443 methods=GET path=/x', 'tcp://[fd00::1]:443', '10.0.0.0/8:*']", true},
		{"[[rule]]\nallow = 'a.test'\nmethods = ['M-SEARCH']\npath = '/a/*'\nprivate = false\nmax-bytes = 1", true},
		{"[[rule]]\nallow = 'a.test'\npath = ''", true},
		{"alow = []", false},
		{"mode = 'opne'", false},
		{"mode = 1", false},
		{"allow = 'a.test'", false},
		{"allow = [1]", false},
		{"allow = ['a.test  private']", false},
		{"[[rule]]\nmax-bytes = 1", false},
		{"[[rule]]\nallow = 'a.test'\ndeny = 'b.test'", false},
		{"[[rule]]\nallow = 'a.test'\npaths = '/x'", false},
		{"[[rule]]\nallow = 'a.test'\npath = 'x'", false},
		{"[[rule]]\nallow = 'a.test'\nmethods = ['get']", false},
		{"[[rule]]\nallow = 'a.test'\nmax-bytes = 0", false},
		{"[[rule]]\nallow = 'a.test'\nmax-requests = 1.5", false},
		{"[[rule]]\nallow = 'a.test'\nech = 'yes'", false},
	} {
		var tree any
		if _, err := toml.Decode(c.text, &tree); err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		var decoded any
		if err := json.Unmarshal(raw, &decoded); err != nil {
			t.Fatal(err)
		}
		_, perr := parsePolicy("p.toml", c.text)
		serr := schema.Validate(decoded)
		if (perr == nil) != c.ok || (serr == nil) != c.ok {
			t.Errorf("%q:\nParse says %v,\nthe schema %v, want ok %v", c.text, perr, serr, c.ok)
		}
	}
}
