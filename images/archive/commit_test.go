package archive

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"demesne/images"
	"demesne/images/oci"
)

// TestCommitted checks that a commit keeps all known and unknown fields of a configuration, except
// the layers and the change.
func TestCommitted(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	hex := strings.NewReplacer("sha256:aa", "sha256:"+strings.Repeat("aa", 32), "sha256:bb", "sha256:"+strings.Repeat("bb", 32)).Replace
	layer := oci.Layer{DiffID: oci.Digest(hex("sha256:bb"))}
	words := func(w ...string) *[]string { return &w }
	const date = `"created":"2026-01-02T03:04:05Z"`
	for name, c := range map[string]struct {
		base   string
		added  []oci.Layer
		change images.Change
		want   string // "": refused
	}{
		"nothing known": {`{"os":"linux","odd":{"x":1},"rootfs":{"type":"layers","diff_ids":["sha256:aa"]}}`, []oci.Layer{layer}, images.Change{},
			`{"os":"linux","odd":{"x":1},"config":{},` + date + `,"rootfs":{"type":"layers","diff_ids":["sha256:aa","sha256:bb"]}}`},
		"history": {`{"history":[{"created_by":"x"}],"rootfs":{"type":"layers","diff_ids":["sha256:aa"]}}`, []oci.Layer{layer}, images.Change{},
			`{"config":{},` + date + `,"history":[{"created_by":"x"},{` + date + `,"created_by":"demesne commit","empty_layer":false}],"rootfs":{"type":"layers","diff_ids":["sha256:aa","sha256:bb"]}}`},
		"no layer": {`{"history":[],"rootfs":{"type":"layers","diff_ids":[]}}`, nil, images.Change{},
			`{"config":{},` + date + `,"history":[{` + date + `,"created_by":"demesne commit","empty_layer":true}],"rootfs":{"type":"layers","diff_ids":[]}}`},
		"change": {`{"config":{"Env":["A=1","B=2"],"Cmd":["old"],"Labels":{"l":"v"},"User":"app"},"rootfs":{"type":"layers","diff_ids":[]}}`, nil,
			images.Change{Env: []string{"B=3", "C=4"}, Cmd: words("new", "-x"), WorkingDir: "/w", User: "7:8"},
			`{"config":{"Env":["A=1","B=3","C=4"],"Cmd":["new","-x"],"Labels":{"l":"v"},"User":"7:8","WorkingDir":"/w"},` + date + `,"rootfs":{"type":"layers","diff_ids":[]}}`},
		"an entrypoint takes the command along": {`{"config":{"Cmd":["old"]},"rootfs":{"type":"layers","diff_ids":[]}}`, nil, images.Change{Entrypoint: words("e")},
			`{"config":{"Cmd":[],"Entrypoint":["e"]},` + date + `,"rootfs":{"type":"layers","diff_ids":[]}}`},
		"no object": {`[]`, nil, images.Change{}, ""},
		"odd env":   {`{"config":{"Env":7},"rootfs":{}}`, nil, images.Change{Env: []string{"A=1"}}, ""},
	} {
		got, err := committed([]byte(hex(c.base)), c.added, c.change, now)
		if c.want == "" {
			if err == nil {
				t.Errorf("%s: %s", name, got)
			}
			continue
		}
		var a, b any
		if err != nil || json.Unmarshal(got, &a) != nil || json.Unmarshal([]byte(hex(c.want)), &b) != nil || !reflect.DeepEqual(a, b) {
			t.Errorf("%s:\n%s\n%s\n%v", name, got, c.want, err)
		}
	}
}
