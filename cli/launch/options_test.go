package launch

import (
	"strings"
	"testing"

	"demesne/cli/app"
)

func TestSetUser(t *testing.T) {
	for _, s := range []string{"", "ro ot", "-1", "root:-1", "/x", "4294967295:wheel", "1:", ":1", "1:2:3", "4294967295", "0:4294967295", "4294967296", "+1", " 1"} {
		if err := (&ProcessOptions{}).SetUser(s); err == nil {
			t.Errorf("setUser(%q): taken", s)
		}
	}
}

func TestSetName(t *testing.T) {
	for s, ok := range map[string]bool{
		"a": true, "Build-1.2_x": true, strings.Repeat("n", 63): true,
		"": false, ".": false, "..": false, "-x": false, "a/b": false, "a b": false, "a\nb": false, "é": false, strings.Repeat("n", 64): false,
	} {
		if err := (&LifeOptions{}).setName(s); (err == nil) != ok {
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
		env, err := (&ProcessOptions{Variables: c.env, TTY: c.tty}).Environment(lookup)
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

// TestMinimalText checks that a run without namespaces says where Landlock does not restrict signals.
func TestMinimalText(t *testing.T) {
	for abi, says := range map[int]bool{0: true, 5: true, 6: false, 7: false} {
		if got := minimalText(abi); strings.Contains(got, "can signal every process of this user") != says || !strings.HasPrefix(got, "isolation is minimal: ") {
			t.Errorf("ABI %d: %q", abi, got)
		}
	}
}
