package run

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
		{"-it -- sh -l", "sh -l", func(o *runOptions) bool { return o.Interactive && o.TTY }},
		{"-ti sh -i", "sh -i", func(o *runOptions) bool { return o.Interactive && o.TTY }},
		{"-itc text a b", "a b", func(o *runOptions) bool { return o.TTY && *o.Shell == "text" }},
		{"-ctext a", "a", func(o *runOptions) bool { return *o.Shell == "text" }},
		{"-c -- a", "a", func(o *runOptions) bool { return *o.Shell == "--" }},
		{"--memory=1g --memory 2g x --memory 3g", "x --memory 3g", func(o *runOptions) bool { return o.Limits.Memory == 2<<30 }},
		{"--json cmd", "cmd", func(o *runOptions) bool { return o.JSON && o.JSONFile == "" }},
		{"--json=f cmd", "cmd", func(o *runOptions) bool { return o.JSON && o.JSONFile == "f" }},
		{"--env A=1=2 --env B", "", func(o *runOptions) bool { return slices.Equal(o.Variables, []string{"A=1=2", "B"}) }},
		{"--in a --in b", "", func(o *runOptions) bool { return slices.Equal(o.Inputs, []string{"a", "b"}) }},
		{"-", "-", func(*runOptions) bool { return true }},
		{"-- -- x", "-- x", func(*runOptions) bool { return true }},
		{"--user 1000 x", "x", func(o *runOptions) bool { return *o.User == runner.User{UID: 1000, GID: 1000} }},
		{"--user me:staff x", "x", func(o *runOptions) bool { return o.User == nil && o.UserName == "me:staff" }},
		{"--user me --user 7 x", "x", func(o *runOptions) bool { return o.UserName == "" && o.User.UID == 7 }},
		{"--image python --pull never x", "x", func(o *runOptions) bool { return o.Image.Full == "docker.io/library/python:3.12" && o.Pull == "never" }},
		{"--entrypoint= x", "x", func(o *runOptions) bool { return len(*o.Entrypoint) == 0 }},
		{"--user 1000:5 x", "x", func(o *runOptions) bool { return *o.User == runner.User{UID: 1000, GID: 5} }},
	} {
		o := &runOptions{}
		rest, err := o.Flags().Parse(strings.Fields(c.args))
		if err != nil || strings.Join(rest, " ") != c.rest || !c.says(o) {
			t.Errorf("%q: rest %q, %+v, %v", c.args, rest, o, err)
		}
	}
}
