package sandbox

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/store"
)

// TestIDMapMatches checks which sandboxes a runner accepts by the id map of their files, and what it advises for the others.
func TestIDMapMatches(t *testing.T) {
	boot := func(why, fix string, ranges ...runner.IDRange) api.Boot {
		return api.Boot{Mode: "user", UIDMap: ranges, GIDMap: ranges, MapWhy: why, MapFix: fix}
	}
	self := runner.IDRange{Host: 1001, Size: 1}
	many := boot("", "", self, runner.IDRange{Inside: 1, Host: 100000, Size: 65535})
	moved := boot("", "", self, runner.IDRange{Inside: 1, Host: 300000, Size: 65535})
	unprivileged := boot("no_new_privs", "", self)
	without := boot("no subordinate ids", "demesne check", self)
	other := boot("", "", runner.IDRange{Host: 1002, Size: 1})
	for _, c := range []struct {
		name       string
		files, now api.Boot
		text, hint string
	}{
		{"the same", many, many, "", ""},
		{"the same single id", without, unprivileged, "", ""},
		{"ids were added", without, many, "single-1001-1001, and this runner has map-", "setpriv --no-new-privs demesne"},
		{"no_new_privs", many, unprivileged, "and this runner has single-1001-1001: no_new_privs", "without no_new_privs"},
		{"ids were removed", many, without, "single-1001-1001: no subordinate ids", "demesne check"},
		{"another range", many, moved, "map-", ""},
		{"another group", other, many, "single-1002-1002", ""},
		{"no map", many, api.Boot{Mode: "minimal"}, "minimal", ""},
	} {
		m := &Machine{Boot: c.now}
		err := m.mapped(store.Record{Map: layerKey(c.files)})
		var e *ipc.Error
		switch {
		case c.text == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.text == "":
		case !errors.As(err, &e) || e.Code != ipc.CodeRequirement || !strings.Contains(e.Text, c.text) || !strings.Contains(e.Hint, c.hint) || c.hint == "" && e.Hint != "":
			t.Errorf("%s: %v, hint %+v", c.name, err, e)
		}
	}
}

// TestLeftBehind checks that only a lack of rights is an id map's.
func TestLeftBehind(t *testing.T) {
	if err := LeftBehind(nil); err != nil {
		t.Error(err)
	}
	if err := LeftBehind(fs.ErrExist); err != fs.ErrExist {
		t.Error(err)
	}
	var e *ipc.Error
	if err := LeftBehind(&fs.PathError{Op: "unlinkat", Path: "f", Err: fs.ErrPermission}); !errors.As(err, &e) || e.Code != ipc.CodeRequirement || e.Hint == "" {
		t.Errorf("%v", err)
	}
}
