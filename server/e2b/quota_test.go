package e2b

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"demesne/server"
)

// under returns a rig with ceilings.
func under(t *testing.T, q Quota) *rig {
	t.Helper()
	r := newRig(t)
	r.quota = q
	r.restart()
	return r
}

// restart starts another server over the same state.
func (r *rig) restart() {
	r.Helper()
	r.http.Close()
	r.api.Close()
	r.start()
}

// volume makes a volume, and returns a function that sends requests for its content.
func (r *rig) volume(name string) (id string, ask func(method, what, body string) int) {
	r.Helper()
	resp, text := r.control("POST", "/volumes", `{"name":"`+name+`"}`)
	var v volume
	if err := json.Unmarshal([]byte(text), &v); err != nil || resp.StatusCode != http.StatusCreated {
		r.Fatalf("%d %s", resp.StatusCode, text)
	}
	return v.ID, func(method, what, body string) int {
		resp, _ := r.send(method, "/volumecontent/"+v.ID+"/"+what, body, "Authorization: Bearer "+v.Token)
		return resp.StatusCode
	}
}

func (r *rig) stored() Stored { return r.api.store.ledger.stored() }

// counted checks the count, and that the next server finds the same.
func (r *rig) counted(what string, want Stored) {
	r.Helper()
	if got := r.stored(); got != want {
		r.Errorf("%s: %+v, want %+v", what, got, want)
	}
	r.restart()
	if got := r.stored(); got != want {
		r.Errorf("%s, after a restart: %+v, want %+v", what, got, want)
	}
}

const kilo = 1 << 10

// TestQuota checks that what the API writes into volumes is counted, passes no ceiling, and is given back (M16).
func TestQuota(t *testing.T) {
	r := under(t, Quota{Bytes: 400 * kilo, Files: 20, Volume: 200 * kilo, Volumes: 3})
	_, ask := r.volume("a")
	_, other := r.volume("b")
	file := strings.Repeat("x", 100*kilo)
	is := func(what string, got, want int) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
	is("a file", ask("PUT", "file?path=/one", file), 201)
	r.counted("a file", Stored{Bytes: 104 * kilo, Files: 1, Volumes: 2})
	is("a full volume", ask("PUT", "file?path=/two", file), 507)
	r.counted("a failed upload", Stored{Bytes: 104 * kilo, Files: 1, Volumes: 2})
	is("the same file", ask("PUT", "file?path=/one&force=true", file[:50*kilo]), 201)
	r.counted("a smaller one", Stored{Bytes: 54 * kilo, Files: 1, Volumes: 2})
	is("too large in its place", ask("PUT", "file?path=/one&force=true", file+file), 507)
	is("removed", ask("DELETE", "path?path=/one", ""), 204)
	r.counted("nothing", Stored{Volumes: 2})
	is("in a directory", ask("PUT", "file?path=/d/e/f", file[:kilo]), 201)
	is("directories", ask("POST", "dir?path=/d/x/y", ""), 201)
	r.counted("directories", Stored{Bytes: 21 * kilo, Files: 5, Volumes: 2})
	is("a directory again", ask("POST", "dir?path=/d/x/y", ""), 409)
	is("too many", ask("POST", "dir?path=/"+strings.Repeat("z/", 16), ""), 507)
	is("too many for a file", ask("PUT", "file?path=/"+strings.Repeat("z/", 15)+"f", ""), 507)
	r.counted("refused", Stored{Bytes: 21 * kilo, Files: 5, Volumes: 2})
	is("removed with its content", ask("DELETE", "path?path=/d", ""), 204)
	r.counted("nothing again", Stored{Volumes: 2})
	is("one volume", ask("PUT", "file?path=/1", strings.Repeat("x", 190*kilo)), 201)
	is("another", other("PUT", "file?path=/1", strings.Repeat("x", 190*kilo)), 201)
	r.volume("c")
	if resp, _ := r.control("POST", "/volumes", `{"name":"d"}`); resp.StatusCode != 507 {
		t.Errorf("a fourth volume: %d", resp.StatusCode)
	}
	for _, name := range []string{"a", "b", "c"} {
		if resp, text := r.control("DELETE", "/volumes/"+name, ""); resp.StatusCode != 204 {
			t.Errorf("remove %s: %d %s", name, resp.StatusCode, text)
		}
	}
	r.counted("no volume", Stored{})
}

// TestQuotaTogether checks that concurrent requests pass no ceiling together, and that the count is exact after them.
func TestQuotaTogether(t *testing.T) {
	r := under(t, Quota{Bytes: 300 * kilo, Files: 1000, Volume: 300 * kilo})
	_, ask := r.volume("a")
	var all sync.WaitGroup
	var written atomic.Int64
	for i := range 40 {
		all.Go(func() {
			name := fmt.Sprintf("/f%d", i)
			if ask("PUT", "file?path="+name, strings.Repeat("x", 16*kilo)) == 201 {
				written.Add(1)
			}
			ask("PUT", "file?path=/same&force=true", strings.Repeat("x", i*10))
			if i%4 == 0 && ask("DELETE", "path?path="+name, "") == 204 {
				ask("PUT", "file?path="+name, "x")
			}
		})
	}
	all.Wait()
	if n := written.Load(); n == 0 || n > 25 { // some were removed meanwhile
		t.Errorf("%d files of 20 KiB below 300 KiB", n)
	}
	got := r.stored()
	if r.restart(); got.Bytes > 300*kilo || got != r.stored() {
		t.Errorf("counted %+v, there is %+v", got, r.stored())
	}
}

// TestQuotaMounted checks that a mounted volume counts as full until the sandbox has ended, and is measured then: what the
// sandbox wrote counts, also in forks, in sandboxes of snapshots, and after a restart of the server (M16).
func TestQuotaMounted(t *testing.T) {
	r := under(t, Quota{Bytes: 270 * kilo, Files: 100, Volume: 100 * kilo})
	id, ask := r.volume("a")
	r.volume("b")
	r.volume("c")
	create := func(volumes string) int {
		resp, _ := r.control("POST", "/v2/sandboxes", `{"volumeMounts":[`+volumes+`]}`)
		return resp.StatusCode
	}
	rec := r.make(`{"volumeMounts":[{"name":"a","path":"/a"},{"name":"b","path":"/b"}]}`)
	if got := r.stored().Bytes; got != 200*kilo {
		t.Errorf("two mounted volumes: %d", got)
	}
	if got := create(`{"name":"c","path":"/c"}`); got != 507 {
		t.Errorf("a third one: %d", got)
	}
	if got := create(`{"name":"a","path":"/a"}`); got != 201 {
		t.Errorf("the same again: %d", got)
	}
	if resp, text := r.control("POST", "/sandboxes/"+rec.ID+"/fork", `{}`); resp.StatusCode != 201 || !strings.Contains(text, "sandboxID") {
		t.Errorf("fork: %d %s", resp.StatusCode, text)
	}
	_, text := r.control("POST", "/sandboxes/"+rec.ID+"/snapshots", `{}`)
	var snap snapshotInfo
	json.Unmarshal([]byte(text), &snap)
	dir := filepath.Join(r.state, volumeData, id)
	if err := os.WriteFile(filepath.Join(dir, "of-a-sandbox"), make([]byte, 60*kilo), 0o600); err != nil {
		t.Fatal(err)
	}
	r.restart()
	if got := r.stored().Bytes; got != 264*kilo { // what was found, and what may still be written
		t.Errorf("after a restart: %d", got)
	}
	for _, e := range r.api.store.all() {
		r.control("DELETE", "/sandboxes/"+e.rec.ID, "")
	}
	want := Stored{Bytes: 64 * kilo, Files: 1, Volumes: 3, Snapshots: 1}
	r.counted("the sandboxes have ended", want)
	if got := ask("PUT", "file?path=/x", strings.Repeat("x", 40*kilo)); got != 507 {
		t.Errorf("a file beside a sandbox's file: %d", got)
	}
	made := r.make(`{"templateID":"` + snap.SnapshotID + `"}`)
	if got := r.stored().Bytes; got != 264*kilo {
		t.Errorf("a sandbox of a snapshot: %d", got)
	}
	if resp, _ := r.control("DELETE", "/volumes/a", ""); resp.StatusCode != http.StatusConflict {
		t.Errorf("its volume: %d", resp.StatusCode)
	}
	r.control("DELETE", "/sandboxes/"+made.ID, "")
	deep := dir
	for range measureDepth + 2 {
		deep = filepath.Join(deep, "d")
	}
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	r.restart()
	if got := r.stored().Bytes; got < 100*kilo {
		t.Errorf("too deep to count: %d", got)
	}
}

// TestQuotaItems checks the numbers of snapshots and templates, and what uploads for templates count (M16).
func TestQuotaItems(t *testing.T) {
	r := under(t, Quota{Bytes: 100 * kilo, Files: 10, Snapshots: 2, Templates: 2})
	rec := r.make(`{}`)
	var snap snapshotInfo
	for i, want := range []int{201, 201, 507} {
		resp, text := r.control("POST", "/sandboxes/"+rec.ID+"/snapshots", `{}`)
		if resp.StatusCode != want {
			t.Errorf("snapshot %d: %d", i, resp.StatusCode)
		}
		if want == 201 {
			json.Unmarshal([]byte(text), &snap)
		}
	}
	r.counted("snapshots", Stored{Snapshots: 2})
	r.control("DELETE", "/templates/"+snap.SnapshotID, "")
	var made struct{ TemplateID string }
	for name, want := range map[string]int{"t1": 202, "t2": 202} {
		resp, text := r.control("POST", "/v3/templates", `{"name":"`+name+`"}`)
		if err := json.Unmarshal([]byte(text), &made); err != nil || resp.StatusCode != want {
			t.Fatalf("%s: %d %s", name, resp.StatusCode, text)
		}
	}
	if resp, _ := r.control("POST", "/v3/templates", `{"name":"t3"}`); resp.StatusCode != 507 {
		t.Errorf("a third template: %d", resp.StatusCode)
	}
	put := func(hash byte, size int) int {
		h := strings.Repeat(string(hash), 64)
		resp, _ := r.send("PUT", "/templatefiles/"+r.api.builds.ticket(made.TemplateID, h)+"/"+made.TemplateID+"/"+h, strings.Repeat("x", size))
		return resp.StatusCode
	}
	for i, c := range []struct {
		hash       byte
		size, want int
	}{{'a', 50 * kilo, 200}, {'b', 50 * kilo, 507}, {'a', 20 * kilo, 200}, {'b', 50 * kilo, 200}} {
		if got := put(c.hash, c.size); got != c.want {
			t.Errorf("upload %d: %d, want %d", i, got, c.want)
		}
	}
	if got := r.stored(); got != (Stored{Bytes: 78 * kilo, Files: 2, Snapshots: 1, Templates: 2}) {
		t.Errorf("%+v", got)
	}
	r.control("DELETE", "/templates/"+made.TemplateID, "")
	if got := put('c', 1); got != 401 {
		t.Errorf("an upload for a removed template: %d", got)
	}
	r.counted("a template was removed", Stored{Snapshots: 1, Templates: 1})
	for range 2 * server.MaxBuilds {
		resp, _ := r.control("POST", "/v3/templates", `{"name":"t1"}`)
		if resp.StatusCode == http.StatusTooManyRequests {
			return
		}
	}
	t.Errorf("%d builds wait", len(r.api.builds.all))
}
