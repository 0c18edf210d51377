package devcontainer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestDecode(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`{"a": 1, // no
"b": [1, 2,], /* c, */ }`, `{"a":1,"b":[1,2]}`},
		{`{"a": "// no, /* neither */ ,]"}`, `{"a":"// no, /* neither */ ,]"}`},
		{`{"a": "\"//", }`, `{"a":"\"//"}`},
		{"\xef\xbb\xbf{}//", `{}`},
		{"[1,//x\n/*y*/]", `[1]`},
		{`[,]`, "error"}, {`{,}`, "error"}, {`[1,,]`, "error"}, {`{"a":,}`, "error"}, {`/* x`, "error"}, {`{"a": 1} /`, "error"}, {`{"a`, "error"}, {`"\`, "error"}, {`,]`, "error"},
	} {
		var v any
		got := "error"
		if err := decode([]byte(c.in), &v); err == nil {
			b, _ := json.Marshal(v)
			got = string(b)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.in, got, c.want)
		}
	}
}

func TestErrorsHaveTheLine(t *testing.T) {
	for in, want := range map[string]string{
		"{\n\n\"image\": nope}":                     "line 3, column 10: invalid literal: nope",
		"{\"a\": 1 // x\n\"b\": 2}":                 "line 2, column 1: invalid character",
		"{\n/* \n":                                  "line 2, column 1: parsing comment: unexpected EOF",
		`{"image": ["x"]}`:                          "image: array is not allowed here",
		`{"build": {"dockerfile": 3}}`:              "build: dockerfile: number is not allowed here",
		`{"image": "x", "containerEnv": {"": "1"}}`: `variable "": not a name`,
		`{"image": "x\u0000"}`:                      "NUL",
		`{"mounts": ["source=x,nonsense=3"]}`:       `mounts: unknown word "nonsense"`,
		`{"postCreateCommand": {"a": {"b": "c"}}}`:  "postCreateCommand: a: not a string",
		`null`:                                          "not an object",
		`{"containerEnv": {"A": ["x"]}}`:                "containerEnv: a list or an object is not allowed here",
		`{"forwardPorts": 3}`:                           "forwardPorts: number is not allowed here",
		`{"hostRequirements": {"cpus": "many"}}`:        "hostRequirements: cpus: string is not allowed here",
		`{"a": "` + strings.Repeat("x", MaxSize) + `"}`: "longer than",
	} {
		if _, err := parse([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", in, err, want)
		}
	}
}

func planOf(t *testing.T, text string, env ...string) *Plan {
	t.Helper()
	f, err := parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p, err := f.Plan(Place{Dir: "/home/me/App", File: ".devcontainer/devcontainer.json", Env: func(name string) (string, bool) {
		for _, e := range env {
			if value, ok := strings.CutPrefix(e, name+"="); ok {
				return value, true
			}
		}
		return "", false
	}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestVariables(t *testing.T) {
	p := planOf(t, `{"image": "x", "containerEnv": {
		"A": "${localWorkspaceFolder}", "B": "${containerWorkspaceFolder}/${localWorkspaceFolderBasename}", "C": "${localEnv:GIVEN}${env:GIVEN}",
		"D": "${localEnv:OTHER:a:b}", "E": "${HOME} ${unknown:x} ${", "F": "${localEnv:OTHER}", "G": "${containerWorkspaceFolderBasename}"},
		"remoteEnv": {"H": "${containerEnv:C}${containerEnv:IMAGE}${containerEnv:NONE:else}", "GONE": null, "IMAGE": null}}`, "GIVEN=yes")
	p.Image(Has{Env: []string{"IMAGE=image"}}, true)
	want := []string{"A=/workspaces/App", "B=/workspaces/App/App", "C=yesyes", "D=a:b", "E=  ${", "F=", "G=App", "H=yesyesimageelse"}
	if !slices.Equal(p.Env, want) {
		t.Errorf("%q\nwant %q", p.Env, want)
	}
	if notes := strings.Join(p.Notes, "\n"); strings.Count(notes, "OTHER") != 2 || strings.Contains(notes, "GIVEN") || !strings.Contains(notes, "IMAGE remains set") {
		t.Errorf("notes: %s", notes)
	}
}

// TestBoundedLabel checks that a label of a stranger's image, or a stranger's file, takes neither much time nor memory, and
// no more lines than a person can read.
func TestBoundedLabel(t *testing.T) {
	rep := strings.Repeat
	numbered := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	big := []string{"X=" + rep("x", 1<<20)}
	for _, c := range []struct {
		name, label string
		refused     bool
		env         string // the value of A
	}{
		{"a variable of the image, often", `[{"containerEnv":{"A":"` + rep("${containerEnv:X}", 50_000) + `"}}]`, true, ""},
		{"in many values", `[{"remoteEnv":{` + numbered(20_000, `"A%d":"${containerEnv:X}",`) + `}}]`, true, ""},
		{"in a hook", `[{"postCreateCommand":["` + rep("${containerEnv:X}", 50_000) + `"]}]`, true, ""},
		{"in a user", `[{"remoteUser":"` + rep("${containerEnv:X}", 50_000) + `"}]`, true, ""},
		{"variables of this machine", `[{"containerEnv":{"A":"` + numbered(50_000, "${localEnv:V%d}") + `"}}]`, true, ""},
		{"variables that never end", `[{"containerEnv":{"A":"` + rep("${", 400_000) + `"}}]`, false, rep("${", 400_000)},
		{"variables that end once", `[{"containerEnv":{"A":"` + rep("${", 400_000) + `}"}}]`, false, rep("${", 400_000) + "}"},
		{"a long word", `[{"containerEnv":{"A":"${containerEnv:NONE:` + rep("y", maxWord) + `}"}}]`, false, "${containerEnv:NONE:" + rep("y", maxWord) + "}"},
		{"notes", `[` + numbered(40_000, `{"runArgs":["%d"]},`) + `{"containerEnv":{"A":"end"}}]`, false, "end"},
	} {
		p := planOf(t, `{"image": "x"}`)
		err := p.Image(Has{Metadata: c.label, Env: big}, true)
		size := 0
		for _, e := range p.Env {
			size += len(e)
		}
		if (err != nil) != c.refused || len(p.Notes) > maxNotes+1 || size > 2*maxExpanded {
			t.Errorf("%s: %v, %d notes, %d bytes", c.name, err, len(p.Notes), size)
		}
		if err == nil && !slices.Equal(p.Env, []string{"A=" + c.env}) {
			t.Errorf("%s: %.100q of %d bytes", c.name, p.Env, size)
		}
	}
	f, err := parse([]byte(`{"image": "x", "workspaceFolder": "` + numbered(2000, "${localEnv:V%d}") + `/w"}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Plan(Place{Dir: "/home/me/App", File: "devcontainer.json"}); err == nil {
		t.Error("a file with 2,000 variables of this machine is planned")
	}
}

func TestUsers(t *testing.T) {
	for _, c := range []struct {
		file, metadata, image string
		writable              bool
		user                  string
		asRoot                bool
	}{
		{`"remoteUser": "a", "containerUser": "b"`, "", "c", false, "a", false},
		{`"containerUser": "b"`, "", "c", false, "b", false},
		{`"containerUser": "b"`, `[{"remoteUser": "m"}, {"id": "x"}]`, "c", false, "m", false},
		{``, `{"containerUser": "m"}`, "c", true, "m", true},
		{``, ``, "node:node", true, "node:node", true},
		{``, ``, "", true, "", false},
		{`"remoteUser": "root"`, `[{"remoteUser": "m"}]`, "c", true, "root", false},
		{`"remoteUser": "a", "updateRemoteUserUID": false`, "", "", true, "a", false},
	} {
		p := planOf(t, `{"image": "x", `+c.file+`}`)
		p.Image(Has{Metadata: c.metadata, User: c.image}, c.writable)
		if p.User != c.user || p.AsRoot != c.asRoot {
			t.Errorf("%+v: %q, as root %v", c, p.User, p.AsRoot)
		}
	}
}

func TestWorkspace(t *testing.T) {
	for file, want := range map[string]string{
		`{"image": "x"}`: "/workspaces/App [{. /workspaces/App false}]",
		`{"image": "x", "workspaceFolder": "/w/x/../y"}`: "/w/y [{. /w/y false}]",
		`{"image": "x", "workspaceMount": ""}`:           "/workspaces/App []",
		`{"image": "x", "workspaceMount": "source=${localWorkspaceFolder}/sub,target=/w,type=bind,readonly", "workspaceFolder": "/w/in"}`:         "/w/in [{sub /w true}]",
		`{"image": "x", "workspaceMount": {"source": "${localWorkspaceFolder}", "target": "/w/${localWorkspaceFolderBasename}", "type": "bind"}}`: "/w/App [{. /w/App false}]",
	} {
		p := planOf(t, file)
		if got := fmt.Sprint(p.Dir, " ", p.Mounts); got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
	}
}

func TestBuildPaths(t *testing.T) {
	for build, want := range map[string]string{
		`{"dockerfile": "Dockerfile"}`:                                                   ".devcontainer/Dockerfile .devcontainer",
		`{"dockerfile": "../ci/Dockerfile", "context": ".."}`:                            "ci/Dockerfile .",
		`{"dockerfile": "./D", "context": "${localWorkspaceFolder}/src"}`:                ".devcontainer/D src",
		`{"dockerfile": "D", "context": "a/../../b", "cacheFrom": ["x"], "options": []}`: ".devcontainer/D b",
	} {
		p := planOf(t, `{"build": `+build+`}`)
		if got := p.Build.File + " " + p.Build.Context; got != want {
			t.Errorf("%s: %s, want %s", build, got, want)
		}
	}
	for _, path := range []string{"../..", "../../x", "/", "/home/me", "/home/me/Apple", "${localWorkspaceFolder}/.."} {
		f, err := parse([]byte(`{"build": {"dockerfile": "D", "context": "` + path + `"}}`))
		if err == nil {
			_, err = f.Plan(Place{Dir: "/home/me/App", File: ".devcontainer/devcontainer.json"})
		}
		if err == nil || !strings.Contains(err.Error(), "outside of the workspace") {
			t.Errorf("context %q: %v", path, err)
		}
	}
}

// TestScript executes the script of hooks.
func TestScript(t *testing.T) {
	run := func(hooks, home string, keep bool, argv ...string) (string, string, int) {
		p := planOf(t, `{"image": "x", `+hooks+`}`)
		p.Image(Has{}, true)
		p.Dir = t.TempDir()
		wrapped := p.Wrap(argv, keep)
		cmd := exec.Command(wrapped[0], wrapped[1:]...)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr, cmd.Env = &out, &errs, append(cmd.Environ(), "HOME="+home)
		cmd.Run()
		return out.String(), errs.String(), cmd.ProcessState.ExitCode()
	}
	const hooks = `"onCreateCommand": "echo it\\'s", "postStartCommand": {"a": ["echo", "x  *"], "b": "echo y"}`
	home := t.TempDir()
	for i := range 2 {
		out, errs, code := run(hooks, home, true, "echo", "z  *")
		lines := strings.Split(strings.TrimSpace(errs), "\n")
		slices.Sort(lines)
		want := []string{"it's", "x  *", "y"}
		if i > 0 {
			want = []string{""}
		}
		if out != "z  *\n" || code != 0 || !slices.Equal(lines, want) {
			t.Errorf("run %d: exit %d, %q, %q", i, code, out, errs)
		}
	}
	if _, errs, _ := run(hooks, home, false, "true"); !strings.Contains(errs, "it's") {
		t.Errorf("a sandbox that is not kept: %q", errs)
	}
	if out, _, code := run(hooks, "/proc/none", true, "echo", "z"); out != "z\n" || code != 0 {
		t.Errorf("a home that cannot be written: exit %d, %q", code, out)
	}
	out, errs, code := run(`"postCreateCommand": {"a b": "exit 3", "c": "echo still"}, "postStartCommand": "echo never"`, home, true, "echo", "never")
	if out != "" || code != 3 || !strings.Contains(errs, "postCreateCommand:a_b: exit 3") || !strings.Contains(errs, "still") || strings.Contains(errs, "never") {
		t.Errorf("a failing hook: exit %d, %q, %q", code, out, errs)
	}
	if left, _ := filepath.Glob(home + "/.devcontainer/lock"); left != nil {
		t.Errorf("the lock remains")
	}
	if p := planOf(t, `{"image": "x", "postCreateCommand": " "}`); !reflect.DeepEqual(p.Wrap([]string{"a"}, true), []string{"a"}) {
		t.Error("a script without hooks")
	}
}

func TestLacks(t *testing.T) {
	for needs, want := range map[string]int{
		`{"cpus": 2, "memory": "4gb", "storage": "32gb"}`: 0, `{"cpus": 3}`: 1, `{"memory": "5gb"}`: 1, `{"storage": "1tb"}`: 1,
		`{"memory": "much"}`: 1, `{"gpu": true}`: 1, `{"gpu": "optional"}`: 0, `{"gpu": {"cores": 3}}`: 1, `{"memory": "99999999999999tb"}`: 1, `{"memory": 1024}`: 0,
	} {
		if got := planOf(t, `{"image": "x", "hostRequirements": `+needs+`}`).Needs.Lacks(2, 4<<30, 100<<30); len(got) != want {
			t.Errorf("%s: %q", needs, got)
		}
	}
}

// FuzzParse checks that no file makes a plan that leaves the workspace.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"image": "a", "mounts": ["source=${localWorkspaceFolder}/../x,target=/y"], // c` + "\n" + `"postCreateCommand": {"a": ["b"]},}`,
		`{"build": {"dockerfile": "../../D", "context": "${localEnv:X}"}, "workspaceMount": {"source": "/", "target": "/"}}`,
		`{"image": "${localEnv:A:b}", "remoteEnv": {"A": null}, "workspaceFolder": "${containerWorkspaceFolder}", "hostRequirements": {"memory": "8gb"}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := parse(text)
		if err != nil {
			return
		}
		p, err := file.Plan(Place{Dir: "/home/me/app", File: ".devcontainer/devcontainer.json"})
		if err != nil {
			return
		}
		for _, m := range p.Mounts {
			if !filepath.IsLocal(m.Source) || !filepath.IsAbs(m.Target) {
				t.Errorf("mount %+v", m)
			}
		}
		if b := p.Build; b != nil && (!filepath.IsLocal(b.Context) || !filepath.IsLocal(b.File)) {
			t.Errorf("build %+v", b)
		}
		p.Image(Has{Metadata: string(text), Env: []string{"PATH=/bin"}, User: "x"}, true)
		if argv := p.Wrap([]string{"cmd"}, true); argv[len(argv)-1] != "cmd" {
			t.Errorf("%q", argv)
		}
		if strings.Contains(strings.Join(p.Env, "\n"), "/home/me/app") && !bytes.Contains(text, []byte("me")) {
			t.Errorf("the workspace's path is in %q", p.Env)
		}
	})
}

// TestUnfilled checks that a variable that stands for nothing is named, also before the image is known, and that it is not
// passed as a text. A shell has variables of its own.
func TestUnfilled(t *testing.T) {
	p := planOf(t, `{"build": {"dockerfile": "D", "args": {"A": "${templateOption:variant}", "B": "${localEnv:GIVEN}${localEnv:TAG}"}}, "containerEnv": {"C": "a${templateOption:c}b${HOME}"},
		"postCreateCommand": "echo ${HOME} ${x:1} ${templateOption:hook}", "onCreateCommand": ["sh", "-c", "echo ${HOME:-x} ${input:y}"]}`, "GIVEN=yes")
	if !slices.Equal(p.Build.Args, []string{"A=", "B=yes"}) {
		t.Errorf("%q", p.Build.Args)
	}
	notes := slices.Clone(p.Notes)
	p.Image(Has{}, false)
	if argv := strings.Join(p.Wrap([]string{"true"}, false), " "); p.Env[0] != "C=ab" || !strings.Contains(argv, "echo ${HOME} ${x:1} '") || !strings.Contains(argv, "echo ${HOME:-x} '") {
		t.Errorf("%q, %s", p.Env, argv)
	}
	notes = append(notes, "after the image")
	notes = append(notes, p.Notes...)
	want := []string{
		"${localEnv:TAG}: not given to the sandbox; demesne run --env TAG gives it", "${templateOption:variant}: not filled in: left out; the file is a template", "after the image",
		"${templateOption:c}: not filled in: left out; the file is a template", "${HOME}: not filled in: left out",
		"${input:y}: not filled in: left out", "${templateOption:hook}: not filled in: left out; the file is a template",
	}
	slices.Sort(notes)
	slices.Sort(want)
	if !slices.Equal(notes, want) {
		t.Errorf("%q", notes)
	}
	for text, says := range map[string]string{
		`{"image": "x:${templateOption:v}"}`:                                        `image: "x:${templateOption:v}": ${templateOption:v} is not filled in; the file is a template: write the value in its place`,
		`{"image": "x:${localEnv:TAG}"}`:                                            `image: "x:${localEnv:TAG}": ${localEnv:TAG} is not filled in; --env TAG gives it`,
		`{"image": "x:${VARIANT}"}`:                                                 `image: "x:${VARIANT}": ${VARIANT} is not filled in; write the value in its place`,
		`{"build": {"dockerfile": "${templateOption:f}"}}`:                          `build: path: "${templateOption:f}": ${templateOption:f} is not filled in; the file is a template: write the value in its place`,
		`{"build": {"dockerfile": "D", "target": "${localEnv:T}"}}`:                 `build: target: "${localEnv:T}": ${localEnv:T} is not filled in; --env T gives it`,
		`{"image": "x:${localEnv:TAG:latest}"}`:                                     ``,
		`{"build": {"dockerfile": "D", "context": "${localWorkspaceFolder}/../y"}}`: `build: "${localWorkspaceFolder}/../y" is outside of the workspace, and a devcontainer.json gets nothing else of this machine; `,
	} {
		f, err := parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Plan(Place{Dir: "/home/me/App", File: ".devcontainer/devcontainer.json"})
		got := ""
		if err != nil {
			refused := &Refused{}
			errors.As(err, &refused)
			got = err.Error() + "; " + refused.Hint
		}
		if got != says {
			t.Errorf("%s: %s\nwant %s", text, got, says)
		}
	}
}

// TestFeatureOrder checks the order of features, by what they need, by what they follow, and by what the file says.
func TestFeatureOrder(t *testing.T) {
	for _, c := range []struct {
		name     string
		features map[string]string // name, and its description
		file     string            // the names in the file
		override string
		want     string
	}{
		{"names", map[string]string{"./b": `{}`, "./a": `{}`, "./c": `{}`}, `"./c", "./a", "./b"`, ``, "./a ./b ./c"},
		{"after", map[string]string{"./a": `{"installsAfter": ["./c", "r.test/none"]}`, "./c": `{}`}, `"./a", "./c"`, ``, "./c ./a"},
		{"after a version", map[string]string{"./a": `{"installsAfter": ["r.test/o/x"]}`, "r.test/o/x:1.2": `{}`}, `"./a", "r.test/o/x:1.2"`, ``, "r.test/o/x:1.2 ./a"},
		{"after a missing one", map[string]string{"./a": `{"installsAfter": ["./x"]}`}, `"./a"`, ``, "./a"},
		{"needs", map[string]string{"./a": `{"dependsOn": {"./z": {}}}`, "./z": `{"dependsOn": {"./y": "2"}}`, "./y": `{}`}, `"./a"`, ``, "./y ./z ./a"},
		{"needs one twice", map[string]string{"./a": `{"dependsOn": {"./z": {}}}`, "./b": `{"dependsOn": {"./z": {}}}`, "./z": `{}`}, `"./a", "./b", "./z"`, ``, "./z ./a ./b"},
		{"needs two forms", map[string]string{"./a": `{"dependsOn": {"./z": {"o": "1"}}}`, "./z": `{"options": {"o": {"default": "0"}}}`}, `"./a", "./z"`, ``, "./z ./z ./a"},
		{"override", map[string]string{"./a": `{}`, "./b": `{}`, "./c": `{}`}, `"./a", "./b", "./c"`, `"./c", "./b"`, "./c ./b ./a"},
		{"override against a need", map[string]string{"./a": `{}`, "./b": `{"dependsOn": {"./a": {}}}`}, `"./a", "./b"`, `"./b"`, "./a ./b"},
		{"a circle", map[string]string{"./a": `{"dependsOn": {"./b": {}}}`, "./b": `{"dependsOn": {"./a": {}}}`}, `"./a"`, ``, "features: they wait for each other: ./a, ./b"},
		{"a circle of wishes", map[string]string{"./a": `{"installsAfter": ["./b"]}`, "./b": `{"installsAfter": ["./a"]}`}, `"./a", "./b"`, ``, "features: they wait for each other: ./a, ./b"},
	} {
		text := `{"image": "x", "features": {` + strings.ReplaceAll(c.file, ",", ": {},") + `: {}}, "overrideFeatureInstallOrder": [` + c.override + `]}`
		p := planOf(t, text)
		err := p.Resolve(func(name string) (Content, error) { return Content{Text: []byte(c.features[name]), Dir: name}, nil })
		var got []string
		for _, f := range p.features {
			got = append(got, f.name)
		}
		if err != nil {
			got = []string{err.Error()}
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s: %s, want %s", c.name, s, c.want)
		}
	}
}

// TestFeatureBounds checks that a chain of features ends.
func TestFeatureBounds(t *testing.T) {
	p := planOf(t, `{"image": "x", "features": {"./1": {}}}`)
	n := 1
	err := p.Resolve(func(name string) (Content, error) {
		n++
		return Content{Text: fmt.Appendf(nil, `{"dependsOn": {"./%d": {}}}`, n), Dir: name}, nil
	})
	if err == nil || !strings.Contains(err.Error(), "more than 64 features") || n > 80 {
		t.Errorf("%d features: %.200v", n, err)
	}
}

// TestFeatureNames checks where a name leads, and the variables of options.
func TestFeatureNames(t *testing.T) {
	for name, want := range map[string]string{
		"./a": "a true", "./a/../b": "b true", "./../a": "error", "../a": "error", "/a": "error", ".": "error", "https://x.test/a.tgz": "error",
		"go": "error", "owner/go:1": "error", "r.test/o/f:1": " false", "localhost:5000/f": " false",
	} {
		dir, local, err := LocalFeature(name)
		got := fmt.Sprint(dir, " ", local)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	for option, want := range map[string]string{"version": "VERSION", "with-extras": "WITH_EXTRAS", "1st.x": "_ST_X", "_a": "_A", "": ""} {
		if got := variable(option); got != want {
			t.Errorf("%s: %s, want %s", option, got, want)
		}
	}
	locked, err := Locked([]byte(`{"features": {"r.test/o/f:1": {"resolved": "r.test/o/f@sha256:1"}, "r.test/o/g": {"resolved": "other.test/o/g@sha256:1"}}}`))
	if err != nil || len(locked) != 1 || locked["r.test/o/f:1"] != "r.test/o/f@sha256:1" {
		t.Errorf("%v: %v", err, locked)
	}
}
