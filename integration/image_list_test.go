package integration

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"demesne/integration/fixture"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// TestImagePullList checks that the images of a list are pulled, whatever happens to one of them: the end tells what is
// missing, and the next call asks for no other image. A registry that asks to wait gets no request meanwhile.
func TestImagePullList(t *testing.T) {
	g := newGallery(t)
	var lines []string
	for i := range 6 {
		ref, _ := g.simple(fmt.Sprintf("set/i%d:1", i))
		lines = append(lines, ref)
	}
	absent := g.reg.Ref("set/none:1")
	list := g.file("list", "# a list\n\n"+strings.Join(lines, "\n")+"\n  "+lines[0]+"  \n"+absent+"\n", 0o644)
	if r := g.do("images", "check", "--list", list); r.code != 1 || strings.Count(r.stdout, "missing ") != 7 {
		t.Errorf("before: %+v", r)
	}

	const wait = 21 * time.Second // longer than the library waits by itself
	var mu sync.Mutex
	var paused string
	var until time.Time
	early := 0
	g.reg.Fail(func(r *http.Request) *fixture.Fault {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case !strings.Contains(r.URL.Path, "/manifests/"):
		case paused == "":
			paused, until = r.URL.Path, time.Now().Add(wait-time.Second)
			return &fixture.Fault{Status: 429, Header: http.Header{"Retry-After": {fmt.Sprint(int(wait.Seconds()))}}}
		case r.URL.Path == paused && time.Now().Before(until):
			early++
		}
		return nil
	})
	r := g.do("pull", "--list", list)
	if got := strings.Fields(r.stdout); r.code != 1 || len(got) != 12 || !slices.IsSorted([]string{got[0], got[2], got[4], got[6], got[8], got[10]}) {
		t.Errorf("%+v", r)
	}
	for _, says := range []string{"limits requests: again in 21s", "7 of 7: ", "1 of 7 images are missing:\nmissing " + absent + ": "} {
		if !strings.Contains(r.stderr, says) {
			t.Errorf("stderr lacks %q: %s", says, r.stderr)
		}
	}

	mu.Lock()
	if paused == "" || early > 0 {
		t.Errorf("%d requests for %q too early", early, paused)
	}
	mu.Unlock()
	g.reg.Fail(nil)
	g.reg.Reset()
	r = g.do("pull", "--json", "--list", list)
	if r.code != 1 || strings.Count(r.stdout, `"digest": "sha256:`) < 6 || !strings.Contains(r.stdout, `"code": "not-found"`) {
		t.Errorf("again: %+v", r)
	}
	for i := range 6 {
		if n, _ := g.reg.Count("GET", fmt.Sprintf("set/i%d", i)); n != 0 {
			t.Errorf("%d requests for an image that is here", n)
		}
	}
	g.push("set/none:1", v1.Config{}, g.busybox())
	cmd := g.cli("pull", "-q", "--list", "-")
	cmd.Stdin = strings.NewReader(absent + "\n")
	if r := g.finish(cmd); r.code != 0 || !strings.HasPrefix(r.stdout, "sha256:") || r.stderr != "" {
		t.Errorf("stdin: %+v", r)
	}
	if r := g.do("images", "check", "--list", list); r.code != 0 || strings.Count(r.stdout, "here ") != 7 {
		t.Errorf("at last: %+v", r)
	}
	for says, args := range map[string][]string{
		"line 2: image":                {"pull", "--list", g.file("bad", "debian:12\nnot a name\n", 0o644)},
		"it names no image":            {"pull", "--list", g.file("empty", "# nothing\n", 0o644)},
		`list "none": no such file`:    {"pull", "--list", "none"},
		`unexpected argument "x"`:      {"pull", "--list", list, "x"},
		"--list: needs the word check": {"images", "--list", list},
	} {
		if r := g.do(args...); r.code != 125 || !strings.Contains(r.stderr, says) {
			t.Errorf("%q: %+v, want %q", args, r, says)
		}
	}
}
