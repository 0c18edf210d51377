package integration

import (
	"encoding/json"
	"net/url"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/google/jsonschema-go/jsonschema"
)

// schema returns a published schema of docs/reference/schema, ready to validate. It also rejects fields that the
// schema does not name. The published schema permits them, because later versions may add some.
func schema(t testing.TB, name string) *jsonschema.Resolved {
	t.Helper()
	load := func(uri *url.URL) (*jsonschema.Schema, error) {
		raw, err := os.ReadFile("../docs/reference/schema/" + path.Base(uri.Path))
		if err != nil {
			return nil, err
		}
		s := &jsonschema.Schema{}
		err = json.Unmarshal(raw, s)
		closed(s)
		for _, d := range s.Defs {
			closed(d)
		}
		return s, err
	}
	root, err := load(&url.URL{Path: name})
	if err != nil {
		t.Fatal(err)
	}
	s, err := root.Resolve(&jsonschema.ResolveOptions{BaseURI: "file:///" + name, Loader: load})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// closed makes a schema of an object reject other properties.
func closed(s *jsonschema.Schema) {
	if s.Properties != nil {
		s.AdditionalProperties = &jsonschema.Schema{Not: &jsonschema.Schema{}}
	}
}

// validate checks one document against a schema, and returns it decoded.
func validate(t testing.TB, s *jsonschema.Resolved, document string) (decoded map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(document), &decoded); err != nil {
		t.Fatalf("%v: %s", err, document)
	}
	if err := s.Validate(decoded); err != nil {
		t.Errorf("%v:\n%s", err, document)
	}
	return decoded
}

// TestSchemaResult validates results and receipts of real runs against the published schemas.
func TestSchemaResult(t *testing.T) {
	b, s := newBox(t), schema(t, "result.json")
	file := b.dir + "/result"
	for _, c := range []struct {
		args []string
		has  string // a field of the document
	}{
		{[]string{"run", "--json", "-c", "echo out; echo err >&2; exit 3"}, "receipt"},
		{[]string{"run", "--json", "-c", `printf '\377'`}, "stdout_base64"},
		{[]string{"run", "--json", "-c", "kill -9 $$"}, "signal"},
		{[]string{"run", "--json", "--nesting", "--manifest", "-c", "echo a > /out/a"}, "manifest"},
		{[]string{"run", "--json=" + file, "--", "true"}, "receipt"},
		{[]string{"run", "--json", "--", "no-such-command"}, "error"},
		{[]string{"run", "--json", "--image", "no-such-image", "--", "true"}, "error"},
		{[]string{"run", "--json", "--key", "k", "--", "true"}, "receipt"},
		{[]string{"exec", "--json", "--key", "k", "--", "true"}, "reason"},
	} {
		text := b.demesne(c.args...).stdout
		if strings.HasSuffix(c.args[1], file) {
			text = readFile(b, file)
		}
		d := validate(t, s, text)
		if d[c.has] == nil {
			t.Errorf("%q: no %s: %s", c.args, c.has, text)
		}
		if path, ok := d["manifest"].(string); ok {
			validate(t, schema(t, "manifest.json"), readFile(t, path))
		}
	}
	id := strings.TrimSpace(b.demesne("ls", "-q").stdout)
	info := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(b.demesne("inspect", "--json", id).stdout), &info); err != nil {
		t.Fatal(err)
	}
	validate(t, schema(t, "receipt.json"), string(info["receipt"]))
	validate(t, s, string(info["result"]))
	b.demesne("rm", id)
}

// TestSchemaMinimal validates a result of the lowest level, which has no id maps.
func TestSchemaMinimal(t *testing.T) {
	b := newBox(t)
	r := b.finish(b.withoutNamespaces(t)("run", "--json", "--", "true"))
	d := validate(t, schema(t, "result.json"), r.stdout)
	if receipt, _ := d["receipt"].(map[string]any); receipt["level"] != "minimal" {
		t.Errorf("level: %s", r.stdout)
	}
}

// TestSchemaDecision validates decision logs, and the policies made from them, against the published schemas.
func TestSchemaDecision(t *testing.T) {
	onInternet(t, func(n *internet) {
		decision, policy := schema(n, "decision.json"), schema(n, "policy.json")
		id := strings.TrimSpace(n.create("--allow-domain", "good.test"))
		script := "for i in 1 2 3 4 5; do curl -sS http://dark.test/ http://good.test/; done; curl -sSk --noproxy '*' https://good.test/; curl -sS https://dark.test/; true"
		result := validate(n, schema(n, "result.json"), n.demesne("exec", "--json", id, "-c", script).stdout)
		if result["denied"] == nil {
			n.Errorf("nothing was denied: %v", result)
		}
		n.demesne("egress", "allow", id, "dark.test:80")
		log, _ := result["egress_log"].(string)
		n.demesne("stop", id) // counted decisions are written at the end
		via := map[any]bool{}
		for _, line := range lines(n, log) {
			if line != "" {
				via[validate(n, decision, line)["via"]] = true
			}
		}
		for _, want := range []string{"http", "connect", "name", "dns", "policy"} {
			if !via[want] {
				n.Errorf("no decision via %s: %s", want, readFile(n, log))
			}
		}
		validate(n, policy, n.demesne("egress", "suggest", "--json", log).stdout)
		validate(n, policy, asJSON(n, n.demesne("egress", "suggest", log).stdout))
		n.demesne("rm", id)
	})
}

// TestSchemaPolicy validates the policy files of the reference, which the program accepts too.
func TestSchemaPolicy(t *testing.T) {
	b, policy := newBox(t), schema(t, "policy.json")
	blocks := strings.Split(readFile(b, "../docs/reference/policy-file.md"), "```toml\n")
	if len(blocks) < 2 {
		t.Fatal("policy-file.md has no policy")
	}
	for _, block := range blocks[1:] {
		text, _, _ := strings.Cut(block, "```")
		validate(t, policy, asJSON(t, text))
		if r := b.demesne("egress", "lint", b.file("policy.toml", text, 0o644)); r.code != 0 {
			t.Errorf("lint: %+v\n%s", r, text)
		}
	}
}

// TestJSONLists checks that empty lists are encoded as [] and never as null.
func TestJSONLists(t *testing.T) {
	b := newBox(t)
	b.keepsJobs()
	id := b.create()
	for _, command := range []string{"diff --json " + id, "ls --json", "jobs --json", "images --json", "images check --json", "gc --json", "inspect --json " + id} {
		r := b.demesne(strings.Fields(command)...)
		if r.code != 0 || !json.Valid([]byte(r.stdout)) || strings.Contains(r.stdout, "null") {
			t.Errorf("%s: %+v", command, r)
		}
	}
}

// asJSON converts TOML to JSON.
func asJSON(t testing.TB, text string) string {
	t.Helper()
	var tree map[string]any
	if _, err := toml.Decode(text, &tree); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	raw, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
