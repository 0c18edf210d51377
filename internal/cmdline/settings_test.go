package cmdline

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"demesne/internal/text"
)

// table returns a command with a flag of each kind, and what they set.
func settings() (*Command, *struct {
	text  string
	size  int64
	on    bool
	names []string
}) {
	v := &struct {
		text  string
		size  int64
		on    bool
		names []string
	}{}
	return &Command{Name: "serve", Flags: Flags{
		{Long: "text", Arg: "TEXT", Env: "X_TEXT", Set: Text(&v.text)},
		{Long: "size", Arg: "SIZE", Env: "X_SIZE", Set: Size(&v.size, 1)},
		{Long: "on", Env: "X_ON", Set: On(&v.on)},
		{Long: "name", Arg: "NAME", Repeat: true, Env: "X_NAME", Set: List(&v.names, func(s string) error {
			if s == "bad" {
				return errors.New("bad")
			}
			return nil
		})},
	}}, v
}

func TestParseWith(t *testing.T) {
	for _, c := range []struct {
		line, env string
		file      map[string]any
		text      string
		size      int64
		on        bool
		names     string
		err       string
	}{
		{file: map[string]any{"text": "f", "size": int64(5), "on": true, "name": []any{"a", "b"}}, text: "f", size: 5, on: true, names: "a b"},
		{file: map[string]any{"name": "a", "on": false, "size": "2k"}, size: 2048, names: "a"},
		{line: "--text l --name c", env: "X_TEXT=e X_SIZE=7", file: map[string]any{"text": "f", "size": int64(5), "name": []any{"a"}}, text: "l", size: 7, names: "c"},
		{env: "X_NAME=a,b X_ON=true", file: map[string]any{"name": []any{"c"}}, on: true, names: "a b"},
		{env: "X_ON=0", file: map[string]any{}},
		{line: "--text l", file: map[string]any{"text": []any{"x"}}, text: "l"}, // the file's value does not count
		{file: map[string]any{"txet": "f"}, err: `key "txet": unknown`},
		{file: map[string]any{"help": true}, err: `key "help": unknown`},
		{file: map[string]any{"--text": "f"}, err: `key "--text": unknown`},
		{file: map[string]any{"size": "x"}, err: `size "x": not a size`},
		{file: map[string]any{"text": []any{"a"}}, err: `key "text": takes one value`},
		{file: map[string]any{"text": true}, err: `key "text": not a text or a number`},
		{file: map[string]any{"text": map[string]any{}}, err: `key "text": not a text or a number`},
		{file: map[string]any{"on": "yes"}, err: `key "on": not true or false`},
		{file: map[string]any{"name": []any{"a", "bad"}}, err: `name "bad": bad`},
		{env: "X_ON=maybe", err: `$X_ON: "maybe": not a boolean`},
		{env: "X_SIZE=x", err: `$X_SIZE: size "x": not a size`},
	} {
		cmd, v := settings()
		env := map[string]string{}
		for _, pair := range strings.Fields(c.env) {
			k, val, _ := strings.Cut(pair, "=")
			env[k] = val
		}
		_, err := cmd.ParseWith(strings.Fields(c.line), func(k string) string { return env[k] }, func() (map[string]any, error) { return c.file, nil })
		if c.err != "" {
			if err == nil || !strings.HasPrefix(err.Error(), c.err) {
				t.Errorf("%q %q %v: %v, want %s", c.line, c.env, c.file, err, c.err)
			}
			continue
		}
		if err != nil || v.text != c.text || v.size != c.size || v.on != c.on || !slices.Equal(v.names, strings.Fields(c.names)) {
			t.Errorf("%q %q %v: %+v %v", c.line, c.env, c.file, v, err)
		}
	}
	cmd, _ := settings()
	_, err := cmd.ParseWith(nil, func(string) string { return "" }, func() (map[string]any, error) { return map[string]any{"txet": "f"}, nil })
	if text.HintOf(err) != "did you mean text?" {
		t.Errorf("hint: %q", text.HintOf(err))
	}
}
