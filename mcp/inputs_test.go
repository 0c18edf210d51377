package mcp

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"demesne/runner"
)

// makeTree makes files, and directories whose names end in a slash, below the root of a server.
func makeTree(t *testing.T, root string, names ...string) {
	t.Helper()
	for _, name := range names {
		at := filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(at), 0o755)
		if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(at, 0o755)
		} else if err == nil {
			err = os.WriteFile(at, nil, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestInputNames checks the names of inputs in /in. @ stands for the root.
func TestInputNames(t *testing.T) {
	d := &desk{}
	s, root := serverFor(t, d)
	cs := client(t, s, nil)
	long := strings.Repeat("é", 126) + ".md" // 255 bytes
	makeTree(t, root, "1/out/", "2/out/", "3/out/", "4/out-2/", "1/facts.jsonl", "2/facts.jsonl", "1/.env", "2/.env", "1/v.d/", "2/v.d/", "1/a:b", "1/a", "1/"+long, "2/"+long)
	for _, c := range []struct{ files, dirs, want string }{
		{``, `"@/1/out","@/2/out","@/3/out"`, "out out-2 out-3"},
		{``, `"@/1/out","@/2/out","@/4/out-2"`, "out out-3 out-2"}, // its own name precedes a number
		{``, `"@/1/out","@/1/out"`, "out out-2"},
		{``, `"@/1/v.d","@/2/v.d"`, "v.d v.d-2"},
		{`"@/1/facts.jsonl","@/2/facts.jsonl"`, ``, "facts.jsonl facts-2.jsonl"},
		{`"@/1/.env","@/2/.env"`, ``, ".env .env-2"},
		{`"@/1/facts.jsonl:out"`, `"@/1/out"`, "out out-2"}, // a given name precedes a base name
		{`"@/1/facts.jsonl:one.jsonl","@/2/facts.jsonl"`, ``, "one.jsonl facts.jsonl"},
		{`{"path":"@/1/facts.jsonl","name":"one"},{"path":"@/2/facts.jsonl"}`, `"@/1/out:x","@/2/out:y"`, "one facts.jsonl x y"},
		{`"@/1/a:b"`, ``, "a:b"}, // it exists
		{`"@/1/a:b:c","@/1/a:d"`, ``, "c d"},
		{`{"path":"@/1/a:b"}`, ``, "a:b"},
		{`"@/1/` + long + `","@/2/` + long + `"`, ``, long + " " + strings.Repeat("é", 125) + "-2.md"},

		{`"@/1/a:x","@/1/facts.jsonl:x"`, ``, `!mount name "x" would collide: @/1/a and @/1/facts.jsonl`},
		{`"@/1/a:"`, ``, `!mount path @/1/a:: no name after the colon`},
		{`"@/1/a:.."`, ``, `!mount path @/1/a:..: name "..": not a file name`},
		{``, `"@/1/out:a/b"`, `!mount path @/1/out:a/b: name "a/b": has a slash, a newline or a NUL byte`},
		{`{"path":"@/1/a","name":"a/../../x"}`, ``, `!files[0]: name "a/../../x": has a slash, a newline or a NUL byte`},
		{`{"path":"@/1/a","name":""}`, ``, `!files[0]: no name after the colon`},
		{`{"path":"@/1/a","name":7}`, ``, `!files[0]: argument "name" is not a string`},
		{`{"path":"@/1/a","as":"x"}`, ``, `!files[0]: unknown member "as"; known: path, name`},
		{`{"name":"x"}`, ``, `!files[0]: required argument "path" not found`},
		{`"/etc/passwd:x"`, ``, "!mount path /etc/passwd is not within DEMESNE_ALLOWED_PATHS"},
		{`{"path":"/etc/passwd","name":"x"}`, ``, "!mount path /etc/passwd is not within DEMESNE_ALLOWED_PATHS"},
		{`{"path":"@/1/a:new"}`, ``, `!resolve mount path @/1/a:new`}, // an object has no PATH:NAME
		{``, `"@/1/a:x"`, `!@/1/a is not a directory`},
	} {
		d.asked = nil
		at := strings.NewReplacer("@", root)
		text, structured, isError := callTool(t, cs, "sandbox_script", at.Replace(`{"command":"x","files":[`+c.files+`],"directories":[`+c.dirs+`]}`))
		want, refused := strings.CutPrefix(at.Replace(c.want), "!")
		switch {
		case refused:
			if !isError || !strings.HasPrefix(text, want) || d.asked != nil {
				t.Errorf("%s %s: %q, want %q", c.files, c.dirs, text, want)
			}
			continue
		case isError:
			t.Errorf("%s %s: %s", c.files, c.dirs, text)
			continue
		}
		var names []string
		for _, in := range d.asked[0].Create.Spec.Inputs {
			names = append(names, in.Name)
			if len(in.Name) > runner.MostInputName {
				t.Errorf("%q has %d bytes", in.Name, len(in.Name))
			}
		}
		if got := strings.Join(names, " "); got != want || (structured["inputs"] != nil) != strings.Contains(got, "-2") {
			t.Errorf("%s %s: names %s, said %v, want %s", c.files, c.dirs, got, structured["inputs"], want)
		}
	}
}

// TestInputNamesTold checks that each tool with inputs says which names they got, in both forms of its result, also for a
// job.
func TestInputNamesTold(t *testing.T) {
	s, root := serverFor(t, &desk{}, withModels)
	cs := client(t, s, nil)
	makeTree(t, root, "1/out/", "2/out/")
	dirs := `"directories":["` + root + `/1/out","` + root + `/2/out"]`
	want := "/in/out is " + root + "/1/out\n/in/out-2 is " + root + "/2/out"
	for _, c := range []struct{ tool, args string }{
		{"sandbox_script", `{"command":"x",` + dirs + `}`}, {"sandbox_script", `{"command":"x","background":true,` + dirs + `}`},
		{"sandbox_create", `{` + dirs + `}`}, {"sandbox_agent", `{"prompt":"x",` + dirs + `}`}, {"sandbox_agent", `{"prompt":"x","background":true,` + dirs + `}`},
	} {
		text, structured, isError := wholeText(t, cs, c.tool, c.args)
		if isError || !strings.HasSuffix(text, "\n"+want) || len(structured["inputs"].([]any)) != 2 {
			t.Errorf("%s %s: %q %v", c.tool, c.args, text, structured["inputs"])
		}
		fits(t, s, c.tool, structured)
	}
	if text, structured, _ := wholeText(t, cs, "sandbox_script", `{"command":"x","directories":["`+root+`/1/out"]}`); structured["inputs"] != nil || strings.Contains(text, "/in/") {
		t.Errorf("an input with its base name: %q", text)
	}
}
