package daemon

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"demesne/runner"
)

// machine returns a host with the given files.
func machine(t *testing.T, files, env map[string]string) host {
	t.Helper()
	h := host{home: "/home/me", root: t.TempDir(), env: func(k string) string { return env[k] }}
	for name, text := range files {
		path := h.root + name
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func found(h host) (lines []string, notes []string) {
	all, notes := h.mirrors()
	for _, m := range all {
		lines = append(lines, m.tool+" "+m.from+" "+strings.Fields(m.rule.String())[0])
	}
	return lines, notes
}

// TestMirrorFiles checks that mirrors are read from each tool's own files, and that errors in some files do not
// affect the others.
func TestMirrorFiles(t *testing.T) {
	h := machine(t, map[string]string{
		"/home/me/.npmrc":                           "registry=https://user:secret@npm.corp.test:8443/\n",
		"/home/me/.cargo/config.toml":               "[source.corp]\nregistry = \"sparse+https://crates.corp.test/index/\"\n",
		"/etc/pip.conf":                             "[global]\nindex-url = nonsense://secret@pip.corp.test\n",
		"/etc/apt/sources.list":                     "deb http://deb.corp.test/debian stable main\n",
		"/etc/apt/sources.list.d/vendor.sources":    "Types: deb\nURIs: https://vendor.corp.test/apt\n",
		"/etc/apt/sources.list.d/old.list.disabled": "deb http://old.corp.test/debian stable main\n",
		"/usr/local/etc/npmrc":                      strings.Repeat("#", most+1),
	}, map[string]string{"GOPROXY": "https://go.corp.test|direct"})
	if err := os.Mkdir(h.root+"/etc/npmrc", 0o755); err != nil {
		t.Fatal(err)
	}
	got, notes := found(h)
	slices.Sort(got)
	want := []string{
		"apt /etc/apt/sources.list deb.corp.test:80",
		"apt /etc/apt/sources.list.d/vendor.sources vendor.corp.test:443",
		"cargo /home/me/.cargo/config.toml crates.corp.test:443",
		"go $GOPROXY go.corp.test:443",
		"npm /home/me/.npmrc npm.corp.test:8443",
	}
	if !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if len(notes) != 3 {
		t.Errorf("notes: %q", notes)
	}
	if all := strings.Join(append(notes, got...), " "); strings.Contains(all, "secret") {
		t.Errorf("a credential is shown: %s", all)
	}
}

func TestMirrorsWithoutHome(t *testing.T) {
	h := machine(t, nil, nil)
	h.home = ""
	if got, notes := found(h); got != nil || notes != nil {
		t.Errorf("%q, %q", got, notes)
	}
}

// TestRules checks that rules prints the rules of a run, or what is wrong.
func TestRules(t *testing.T) {
	h := machine(t, map[string]string{
		"/home/me/.npmrc": "registry=https://npm.corp.test/\n",
		"/p.toml":         "mode = \"package-managers\"\nallow = [\"a.test:443\"]\ndeny = [\"b.test\"]\n",
		"/bad.toml":       "mode = \"opne\"\nallow = [\"*.com\"]\n",
	}, nil)
	handed, kinds := []string{"npm_config_registry=https://npm.corp.test/"}, map[string]string{"npm.corp.test": "npm"}
	for _, c := range []struct {
		mode, file string
		want       runner.EgressRules
	}{
		{"", "", runner.EgressRules{Egress: runner.Egress{Mode: "none"}}},
		{"open", "", runner.EgressRules{Egress: runner.Egress{Mode: "open"}}},
		{"package-managers", "", runner.EgressRules{Egress: runner.Egress{Mode: "package-managers", GoProxy: true, Allow: []string{"npm.corp.test:443"}, Registries: kinds}, Env: handed}},
		{"", "/p.toml", runner.EgressRules{Egress: runner.Egress{Mode: "package-managers", GoProxy: true, Allow: []string{"a.test:443", "npm.corp.test:443"}, Deny: []string{"b.test"}, Registries: kinds}, Env: handed}},
		{"none", "/p.toml", runner.EgressRules{Egress: runner.Egress{Mode: "none", Allow: []string{"a.test:443"}, Deny: []string{"b.test"}}}},
	} {
		k := &call{host: h, mode: c.mode}
		if c.file != "" {
			k.file = h.root + c.file
		}
		got, err := k.rules()
		got.Allow, got.Sources = firstWords(got.Allow), nil
		if err != nil || fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%q %q: %+v, %v; want %+v", c.mode, c.file, got, err, c.want)
		}
	}
	var out bytes.Buffer
	k := &call{host: h, out: &out, file: h.root + "/bad.toml"}
	var r runner.EgressRules
	if code, err := k.giveRules(); code != 0 || err != nil || json.Unmarshal(out.Bytes(), &r) != nil || len(r.Wrong) != 2 || !strings.Contains(r.Wrong[1], "bad.toml:2: ") {
		t.Errorf("bad.toml: %d, %v, %s", code, err, out.String())
	}
}

// TestRulesSources checks that rules name everything they were made from, and nothing if they are not for keeping.
func TestRulesSources(t *testing.T) {
	files := map[string]string{"/home/me/.npmrc": "registry=https://npm.corp.test/\n", "/etc/apt/sources.list.d/a.list": "", "/p.toml": "mode = \"open\"\n"}
	h, fresh := machine(t, files, nil), machine(t, files, nil)
	withEnv := host{home: h.home, root: h.root, env: func(name string) string { return map[string]string{"GOPROXY": "direct"}[name] }}
	time.Sleep(2100 * time.Millisecond) // the files are then settled
	if err := os.WriteFile(fresh.root+"/etc/pip.conf", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		call call
		want bool
	}{
		{"settled", call{host: h, file: h.root + "/p.toml"}, true},
		{"a fresh file", call{host: fresh}, false},
		{"a variable", call{host: withEnv}, false},
	} {
		r, err := c.call.rules()
		if err != nil || (r.Sources != nil) != c.want {
			t.Errorf("%s: %+v, %v", c.name, r.Sources, err)
		}
		if r.Sources == nil {
			continue
		}
		var paths []string
		for _, s := range r.Sources.Files {
			paths = append(paths, strings.TrimPrefix(s.Path, h.root))
		}
		for _, path := range []string{"/home/me/.npmrc", "/etc/pip.conf", "/etc/apt/sources.list.d", "/etc/apt/sources.list.d/a.list", "/home/me/.cargo/config", "/p.toml"} {
			if !slices.Contains(paths, path) {
				t.Errorf("%s: %q is not among the sources %q", c.name, path, paths)
			}
		}
		if !slices.Contains(r.Sources.Env, "GOPROXY") || !slices.Contains(r.Sources.Env, "UV_INDEX_URL") {
			t.Errorf("%s: variables %q", c.name, r.Sources.Env)
		}
	}
}

func firstWords(rules []string) (all []string) {
	for _, r := range rules {
		all = append(all, strings.Fields(r)[0])
	}
	return all
}

// TestUsage checks that a wrong command line is reported in one line on stderr.
func TestUsage(t *testing.T) {
	for line, want := range map[string]string{
		"":              "no command given",
		"nosuch":        `unknown command "nosuch"`,
		"lint":          "0 arguments",
		"replay a":      "1 arguments",
		"list --nosuch": "flag --nosuch: unknown",
		"list opne":     "unknown egress mode",
	} {
		var out, errs bytes.Buffer
		code := run(strings.Fields(line), strings.NewReader(""), &out, &errs)
		if code != exitFailed || out.Len() > 0 || strings.Count(errs.String(), "\n") != 1 || !strings.Contains(errs.String(), want) {
			t.Errorf("%q: %d, %q, %q", line, code, out.String(), errs.String())
		}
	}
}

func TestAt(t *testing.T) {
	if got := at("fd00::1", 443) + " " + at("a.test", 0); got != "[fd00::1]:443 a.test" {
		t.Errorf("%q", got)
	}
}

// TestTOML checks that invalid TOML is reported with its line, for files of any length up to the bound.
func TestTOML(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "",
		"a = 1\n[t]\nb = 'x'\n":               "",
		"a = 1\nb = = 2\n":                    "2: ",
		"a = 1\n\na = 2\n":                    "3: ",
		strings.Repeat("# x\n", 1<<20) + "a.": "1048577: ",
	} {
		var out, errs bytes.Buffer
		code := run([]string{"toml"}, strings.NewReader(text), &out, &errs)
		if (code == exitWrong) != (want != "") || !strings.HasPrefix(out.String(), want) || want == "" && out.Len() > 0 || strings.Count(out.String(), "\n") > 1 || errs.Len() > 0 {
			t.Errorf("%.20q: exit %d, %q %q", text, code, &out, &errs)
		}
	}
	var out, errs bytes.Buffer
	if code := run([]string{"toml"}, strings.NewReader(strings.Repeat("#\n", maxTOML/2+1)), &out, &errs); code != exitFailed || errs.Len() == 0 {
		t.Errorf("too much: exit %d, %q", code, &errs)
	}
}
