package cmdline

import (
	"runtime/debug"
	"testing"
)

func TestDescribe(t *testing.T) {
	stamped := []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"}}
	for _, row := range []struct {
		module   string
		settings []debug.BuildSetting
		want     string
	}{
		{"(devel)", nil, Version + " (go1.26, linux/arm64)"},
		{"", stamped[:1], Version + " (commit 0123456789ab, go1.26, linux/arm64)"},
		{"v0.0.0-20261127000000-0123456789ab+dirty", stamped, Version + " (commit 0123456789ab with changes, go1.26, linux/arm64)"},
		{"v1.2.3", nil, "1.2.3 (go1.26, linux/arm64)"},
	} {
		info := &debug.BuildInfo{GoVersion: "go1.26", Main: debug.Module{Version: row.module}, Settings: row.settings}
		if got := describe(info, "linux/arm64"); got != row.want {
			t.Errorf("%q: %q, want %q", row.module, got, row.want)
		}
	}
}
