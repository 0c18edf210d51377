package mcp

import (
	"math"
	"strings"
	"testing"

	"demesne/runner"
	"demesne/session"
)

// FuzzArgs checks that no arguments of a client yield a request that the Backend must not receive.
func FuzzArgs(f *testing.F) {
	for _, s := range []string{
		"", "null", "[]", `"{}"`, `{"command":"x"}`, `{"command":"x","env":{"A":1,"B":true,"C":[]},"limits":{"memory":"1e3","pids":-1}}`,
		`{"command":"x","timeout_seconds":1e308,"files":["/x"],"directories":[1],"background":"yes"}`, `{"command":"\u0000"}`, `{"command":"x","limits":{"cpus":"NaN"}}`,
		`{"command":"x","cwd":"../x","env":{"A=B":"x"}}`, `{"command":"x","allowed_domains":["a.b"],"egress":"package-managers","image":"host","key":"k"}`,
	} {
		f.Add([]byte(s))
	}
	s := &Server{opts: Options{Images: []string{"host"}, Image: "host", Egress: []string{"none", "package-managers"}, Policy: bounded(session.Bounds{Egress: "package-managers"})}}
	f.Fuzz(func(t *testing.T, raw []byte) {
		a, err := parseArgs(raw)
		if err != nil {
			return
		}
		c := &call{Server: s, args: a}
		r, err := c.sandboxRequest("none")
		if err != nil {
			return
		}
		if r.Create.Image.String() != "host" || r.Create.Spec.Inputs != nil || r.Create.Egress.Mode != "none" && r.Create.Egress.Mode != "package-managers" {
			t.Errorf("%+v", r)
		}
		if l := r.Create.Spec.Limits; l.Memory < 0 || !(l.CPUs >= 0) || math.IsInf(l.CPUs, 0) || l.PIDs < 0 || l.Disk < 0 {
			t.Errorf("limits %+v", l)
		}
		if c.commandRequest(&r) != nil {
			return
		}
		for _, s := range append(r.Run.Command.Env, r.Text()) {
			if strings.ContainsRune(s, 0) || s == "" || s[0] == '=' || len(s) > longestArg {
				t.Errorf("%q", s)
			}
		}
		if r.Run.Command.Timeout < 0 || r.Run.Command.Timeout > runner.Longest || r.Run.Command.Dir != "" && r.Run.Command.Dir[0] != '/' {
			t.Errorf("%+v", r)
		}
	})
}
