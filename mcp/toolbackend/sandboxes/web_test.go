package sandboxes

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"demesne/mcp/webpage"
)

// TestKept checks that a page is kept for 15 minutes, and that the number of pages is bounded.
func TestKept(t *testing.T) {
	w, err := (&Sandboxes{}).Web("")
	if err != nil || w.Searches() {
		t.Fatal(err)
	}
	now := time.Now()
	for i := range keptPages + 2 {
		w.keep(webpage.Order{URL: fmt.Sprint(i)}, &webpage.Page{}, now.Add(time.Duration(i)))
	}
	for address, want := range map[string]bool{"0": false, "63": false, "64": true, "65": true, "66": false} {
		if got := w.recent(webpage.Order{URL: address}, now) != nil; got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
	if w.recent(webpage.Order{URL: "65"}, now.Add(keptFor+65)) != nil || len(w.kept) > keptPages {
		t.Error("a page is kept for too long")
	}
}

func TestSearchAddress(t *testing.T) {
	for address, want := range map[string]string{"http://127.0.0.1:8888": "http://127.0.0.1:8888/search", "https://s.example/x/": "https://s.example/x/search", "s.example": "", "file:///x": ""} {
		w, err := (&Sandboxes{}).Web(address)
		if (err == nil) != (want != "") || err == nil && w.engine.String() != want {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// FuzzHits reads hostile answers of an engine.
func FuzzHits(f *testing.F) {
	f.Add([]byte(`{"results":[{"url":"https://a.example","title":"t","content":"c"},{"url":5}]}`))
	f.Add([]byte(`{"results":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		hits, err := parseHits(body, 3)
		for _, h := range hits {
			if err != nil || len(hits) > 3 || len(h.Title) > 4*maxExtract || strings.ContainsAny(h.Title+h.Content+h.URL, "\n\x1b") || !strings.HasPrefix(h.URL, "http") {
				t.Errorf("%+v %v", h, err)
			}
		}
	})
}
