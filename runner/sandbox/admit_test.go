package sandbox

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"demesne/runner"
	"demesne/runner/ipc"
)

func TestAdmitRootfs(t *testing.T) {
	id := "sha256:" + strings.Repeat("a", 64)
	many := slices.Repeat([]string{id}, layersMax+1)
	for _, row := range []struct {
		name  string
		image string
		r     *runner.Rootfs
		want  string // in the error; "": no error
	}{
		{"host", "host", nil, ""},
		{"unknown", "python", nil, "not known"},
		{"layers", "python", &runner.Rootfs{Store: "/s", Layers: []string{id}}, ""},
		{"no layers", "scratch", &runner.Rootfs{Store: "/s"}, ""},
		{"directory", "dir:/r", &runner.Rootfs{Dir: "/r"}, ""},
		{"directory and store", "dir:/r", &runner.Rootfs{Dir: "/r", Store: "/s"}, ""},
		{"both", "x", &runner.Rootfs{Dir: "/r", Layers: []string{id}}, "layers and a directory"},
		{"nothing", "x", &runner.Rootfs{}, "not absolute"},
		{"relative store", "x", &runner.Rootfs{Store: "s", Layers: []string{id}}, "not absolute"},
		{"relative directory", "x", &runner.Rootfs{Dir: "../r"}, "not absolute"},
		{"relative working directory", "x", &runner.Rootfs{Dir: "/r", WorkingDir: "app"}, "working directory"},
		{"working directory with NUL", "x", &runner.Rootfs{Dir: "/r", WorkingDir: "/a\x00"}, "NUL byte"},
		{"variable", "x", &runner.Rootfs{Dir: "/r", Env: []string{"A=", "B==", "LD_PRELOAD=/x"}}, ""},
		{"no variable", "x", &runner.Rootfs{Dir: "/r", Env: []string{"A=1", "A"}}, "NAME=VALUE"},
		{"pattern of variables", "x", &runner.Rootfs{Dir: "/r", Env: []string{"*"}}, "NAME=VALUE"},
		{"empty variable", "x", &runner.Rootfs{Dir: "/r", Env: []string{""}}, "NAME=VALUE"},
		{"variable without a name", "x", &runner.Rootfs{Dir: "/r", Env: []string{"=x"}}, "NAME=VALUE"},
		{"variable with NUL", "x", &runner.Rootfs{Dir: "/r", Env: []string{"A=\x00"}}, "NAME=VALUE"},
		{"bad layer", "x", &runner.Rootfs{Store: "/s", Layers: []string{"../../etc"}}, "layer"},
		{"too many", "x", &runner.Rootfs{Store: "/s", Layers: many}, "501 layers"},
	} {
		err := admitRootfs(&runner.Spec{Image: row.image, Rootfs: row.r})
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
		var e *ipc.Error
		if err != nil && (!errors.As(err, &e) || e.Code != ipc.CodeInvalid) {
			t.Errorf("%s: %v is not invalid", row.name, err)
		}
	}
}

func TestValidName(t *testing.T) {
	for name, ok := range map[string]bool{"": true, "a": true, "web-1.x_y": true, ".": false, "-o": false, "a/b": false, "a b": false, "a\n": false, "é": false} {
		if err := ValidName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}
