package runner

import (
	"fmt"
	"strings"
	"testing"
)

// TestRouteString checks that no text of a route has its credentials, and that arguments name the rest.
func TestRouteString(t *testing.T) {
	r := Route{Port: 8088, To: "https://a.test", Allow: []string{"POST /x", "GET /y"}, Token: "hidden", Header: map[string]string{"A": "hidden"}, Record: "/r"}
	e := &Egress{Routes: []Route{r}}
	for _, text := range []string{fmt.Sprintf("%v %+v %#v %s", r, r, r, r), fmt.Sprintf("%v %+v %#v", *e, *e, e.Routes), fmt.Sprint(Spec{Egress: e}.Arguments())} {
		if strings.Contains(text, "hidden") || !strings.Contains(text, "127.0.0.1:8088 to https://a.test (POST /x, GET /y)") {
			t.Error(text)
		}
	}
	if p := r.Public(); p.Token != "" || p.Header != nil || p.Record != "/r" {
		t.Errorf("%+v", p)
	}
}
