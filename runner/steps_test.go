package runner

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseSteps(t *testing.T) {
	steps, err := ParseSteps([]byte(`[
		{"shell": "a | b", "env": {"B": "2", "A": "1"}, "cwd": "/x", "timeout_ms": 1500, "allow_failure": true},
		{"argv": ["a", "", "b c"], "shell": null, "env": ["C=3", "D="]},
		{"argv": ["x"], "shell": false, "env": null}]`))
	if err != nil || len(steps) != 3 {
		t.Fatalf("%+v, %v", steps, err)
	}
	first, base := steps[0], Command{Env: []string{"A=0"}, Dir: "/base", Timeout: time.Hour, Else: [][]string{{"no"}}}
	if first.Text() != "a | b" || !first.AllowFailure || steps[1].Text() != "a  b c" {
		t.Errorf("%+v", steps)
	}
	c := first.Command(base)
	if !slices.Equal(c.Argv, []string{"/bin/sh", "-c", "a | b"}) || !slices.Equal(c.Env, []string{"A=0", "A=1", "B=2"}) || c.Dir != "/x" || c.Timeout != 1500*time.Millisecond || c.Else != nil {
		t.Errorf("%+v", c)
	}
	if c := steps[2].Command(base); c.Dir != "/base" || c.Timeout != time.Hour || !slices.Equal(c.Env, base.Env) {
		t.Errorf("%+v", c)
	}
	many := "[" + strings.TrimSuffix(strings.Repeat(`{"shell":"a"},`, mostSteps+1), ",") + "]"
	for text, want := range map[string]string{
		"":                                    "not a JSON array",
		`{"commands": []}`:                    "not a JSON array",
		`[null]`:                              "commands[0]: not an object",
		`[{"shell":"a"},{}]`:                  "commands[1]: has neither",
		`[{"shell":"a\u0000"}]`:               "NUL byte",
		`[{"shell":"a","env":["A\u0000=1"]}]`: "NUL byte",
		`[{"argv":[""]}]`:                     "has neither",
		`[{"argv":[1]}]`:                      "argv: not a string",
		`[{"shell":"a","env":{"A":1}}]`:       "env: neither",
		`[{"shell":"a","env":["A"]}]`:         `env: "A" is not NAME=VALUE`,
		`[{"shell":"a","allow_failure":"y"}]`: "allow_failure: not true or false",
		`[{"shell":"a","timeout":1}]`:         `unknown field "timeout"`,
		many:                                  "1001 commands: at most 1000",
	} {
		if _, err := ParseSteps([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", text, err, want)
		}
	}
}

func FuzzParseSteps(f *testing.F) {
	f.Add([]byte(`[{"shell":"a","env":{"A":"1"}},{"argv":["b"],"timeout_ms":1}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		steps, err := ParseSteps(text)
		if err != nil {
			return
		}
		for _, s := range steps {
			if len(s.Argv) == 0 || s.Argv[0] == "" || s.Timeout < 0 || s.Timeout > longestStep {
				t.Errorf("%q: %+v", text, s)
			}
		}
	})
}
