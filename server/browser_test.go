package server

import (
	"net/http"
	"slices"
	"testing"
)

// TestContain checks which headers of a program in a sandbox reach the browser.
func TestContain(t *testing.T) {
	const own = "3000-ix.boxes.test:8443"
	for _, c := range []struct {
		host, cookie string
		kept         bool
	}{
		{own, "a=b", true}, {own, "a=b; Path=/; HttpOnly", true}, {own, "a=b; Domain=3000-ix.boxes.test", true}, {own, "a=b; domain=.3000-IX.boxes.test", true}, {own, "a=b; Domain=", true},
		{own, `a={"json": "with, these"}`, true}, {own, "demesne=1", true}, {own, "my_demesne_login=1", true},
		{own, "demesne_login=x", false}, {own, "demesne_login_7480=x; Path=/", false}, {own, " demesne_login_7480 =x", false}, {own, "\tDEMESNE_login_1=x", false}, {own, "demesne_login_=", false},
		{own, "=demesne_login_7480=x", false}, {own, "demesne_login_7480", false}, {own, " = x", false}, {own, "", false},
		{own, "a=b; Domain=boxes.test", false}, {own, "a=b; Domain=.boxes.test", false}, {own, "a=b;\tDOMAIN = boxes.test ", false}, {own, "a=b; Domain=test", false}, {own, "a=b; Domain=3000-iy.boxes.test", false},
		{own, "a=b; Domain=3000-ix.boxes.test; Domain=boxes.test", false}, {own, "a=b; Domain=boxes.test.", false}, {own, "a=b; Domain=boxes.test:8443", false}, {own, "a=b; Path=/;Domain=boxes.test", false},
		{own, "a=b\x00; Domain=x", false}, {own, "a=b\x01c", false},
		{"boxes.test", "a=b", true}, {"boxes.test", "a=b; Domain=boxes.test", false}, {"localhost", "a=b; Domain=localhost", false}, {"", "a=b; Domain=localhost", false},
	} {
		h := http.Header{"Set-Cookie": {"first=1", c.cookie}, "Clear-Site-Data": {`"*"`}, "Etag": {"x"}}
		new(Access).Contain(h, c.host, "boxes.test:8443")
		want := []string{"first=1"}
		if c.kept {
			want = append(want, c.cookie)
		}
		if !slices.Equal(h["Set-Cookie"], want) || h["Clear-Site-Data"] != nil || h.Get("Etag") != "x" {
			t.Errorf("%+v: %v", c, h)
		}
	}
}
