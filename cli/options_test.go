package cli

import (
	"slices"
	"strings"
	"testing"

	"demesne/cli/app"
	"demesne/runner"
)

func TestFlagParsing(t *testing.T) {
	for _, c := range []struct {
		args string
		rest string
		says func(*runOptions) bool
	}{
		{"-it -- sh -l", "sh -l", func(o *runOptions) bool { return o.interactive && o.tty }},
		{"-ti sh -i", "sh -i", func(o *runOptions) bool { return o.interactive && o.tty }},
		{"-itc text a b", "a b", func(o *runOptions) bool { return o.tty && *o.shell == "text" }},
		{"-ctext a", "a", func(o *runOptions) bool { return *o.shell == "text" }},
		{"-c -- a", "a", func(o *runOptions) bool { return *o.shell == "--" }},
		{"--memory=1g --memory 2g x --memory 3g", "x --memory 3g", func(o *runOptions) bool { return o.limits.Memory == 2<<30 }},
		{"--json cmd", "cmd", func(o *runOptions) bool { return o.json && o.jsonFile == "" }},
		{"--json=f cmd", "cmd", func(o *runOptions) bool { return o.json && o.jsonFile == "f" }},
		{"--env A=1=2 --env B", "", func(o *runOptions) bool { return slices.Equal(o.env, []string{"A=1=2", "B"}) }},
		{"--in a --in b", "", func(o *runOptions) bool { return slices.Equal(o.inputs, []string{"a", "b"}) }},
		{"-", "-", func(*runOptions) bool { return true }},
		{"-- -- x", "-- x", func(*runOptions) bool { return true }},
		{"--user 1000 x", "x", func(o *runOptions) bool { return *o.user == runner.User{UID: 1000, GID: 1000} }},
		{"--user me:staff x", "x", func(o *runOptions) bool { return o.user == nil && o.userName == "me:staff" }},
		{"--user me --user 7 x", "x", func(o *runOptions) bool { return o.userName == "" && o.user.UID == 7 }},
		{"--image python --pull never x", "x", func(o *runOptions) bool { return o.image.Full == "docker.io/library/python:3.12" && o.pull == "never" }},
		{"--entrypoint= x", "x", func(o *runOptions) bool { return len(*o.entrypoint) == 0 }},
		{"--user 1000:5 x", "x", func(o *runOptions) bool { return *o.user == runner.User{UID: 1000, GID: 5} }},
	} {
		o := &runOptions{}
		rest, err := o.flags().Parse(strings.Fields(c.args))
		if err != nil || strings.Join(rest, " ") != c.rest || !c.says(o) {
			t.Errorf("%q: rest %q, %+v, %v", c.args, rest, o, err)
		}
	}
}

func TestSetUser(t *testing.T) {
	for _, s := range []string{"", "ro ot", "-1", "root:-1", "/x", "4294967295:wheel", "1:", ":1", "1:2:3", "4294967295", "0:4294967295", "4294967296", "+1", " 1"} {
		if err := (&processOptions{}).setUser(s); err == nil {
			t.Errorf("setUser(%q): taken", s)
		}
	}
}

func TestSetName(t *testing.T) {
	for s, ok := range map[string]bool{
		"a": true, "Build-1.2_x": true, strings.Repeat("n", 63): true,
		"": false, ".": false, "..": false, "-x": false, "a/b": false, "a b": false, "a\nb": false, "é": false, strings.Repeat("n", 64): false,
	} {
		if err := (&lifeOptions{}).setName(s); (err == nil) != ok {
			t.Errorf("setName(%q): %v", s, err)
		}
	}
}

func TestEnvironment(t *testing.T) {
	here := map[string]string{"TERM": "vt100", "SET": "value", "EMPTY": ""}
	lookup := func(k string) (string, bool) { v, ok := here[k]; return v, ok }
	for _, c := range []struct {
		env  []string
		tty  bool
		want string
		why  string
	}{
		{nil, false, "", ""},
		{[]string{"A=1", "SET", "EMPTY"}, false, "A=1 SET=value EMPTY=", ""},
		{[]string{"A=1"}, true, "TERM=vt100 A=1", ""},
		{[]string{"TERM=dumb"}, true, "TERM=vt100 TERM=dumb", ""}, // later ones win
		{[]string{"UNSET"}, false, "", `env "UNSET": not set in this environment`},
	} {
		env, err := (&processOptions{env: c.env, tty: c.tty}).environment(lookup)
		if err != nil && err.Error() != c.why || err == nil && strings.Join(env, " ") != c.want {
			t.Errorf("%q: %q, %v", c.env, env, err)
		}
	}
	for name, ok := range map[string]bool{"A": true, "_a1": true, "": false, "1A": false, "A-B": false, "A B": false, "Ä": false, "A\n": false} {
		if app.IsEnvName(name) != ok {
			t.Errorf("isEnvName(%q) = %t", name, !ok)
		}
	}
}

// TestVerbs checks that each command is explained, and that help completes to all commands and topics.
func TestVerbs(t *testing.T) {
	p := program()
	names := p.Verbs()
	for _, c := range p.Commands {
		if c.Group == "" || c.Summary == "" || c.About == "" || len(c.Examples) == 0 {
			t.Errorf("%s: not explained", c.Name)
		}
	}
	for _, topic := range p.Topics {
		names = append(names, topic.Name)
	}
	if !slices.Equal(names, helpWords) {
		t.Errorf("commands and topics %q, helpWords %q", names, helpWords)
	}
}
