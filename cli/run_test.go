package cli

import (
	"slices"
	"strings"
	"testing"

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
