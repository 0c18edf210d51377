package integration

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestServeStored checks that a namespace's volumes hold no more than the operator's ceilings, by the API and from sandboxes,
// also when a sandbox starts again (M16).
func TestServeStored(t *testing.T) {
	b := newBox(t)
	_, alice, _ := b.tenants("--max-disk", "16m", "--max-stored", "40m", "--max-volumes", "2")
	v, other := alice.get("POST", "/volumes", `{"name":"v"}`), alice.get("POST", "/volumes", `{"name":"w"}`)
	if status, text := alice.send("POST", "/volumes", `{"name":"x"}`); status != 507 {
		t.Errorf("a third volume: %d %s", status, text)
	}
	put := func(v map[string]any, name string, megabytes int) int {
		auth := "Authorization: Bearer " + v["token"].(string)
		status, _ := alice.send("PUT", "/volumecontent/"+v["volumeID"].(string)+"/file?path="+name, strings.Repeat("x", megabytes<<20), auth)
		return status
	}
	if got := put(v, "/a", 17); got != 507 {
		t.Errorf("more than a volume: %d", got)
	}
	if got := put(v, "/a", 10); got != 201 {
		t.Fatalf("a file: %d", got)
	}
	made := alice.get("POST", "/v2/sandboxes", `{"volumeMounts":[{"name":"v","path":"/v"}],"timeout":600}`)
	id := made["sandboxID"].(string)
	if got := put(other, "/a", 15); got != 507 { // 10 of v, 16 that v may become, 15: more than 40
		t.Errorf("beside a mounted volume: %d", got)
	}
	exec := func(command string) (int, string) {
		t.Helper()
		body, _ := json.Marshal(map[string]any{"command": command})
		return alice.send("POST", "/v1/sandboxes/e2b-"+id+"/exec", string(body))
	}
	if status, text := exec("head -c 12000000 /dev/zero > /v/b; sleep 1000"); status != 200 || !strings.Contains(text, `"reason":"disk"`) {
		t.Errorf("10 and 12 MB in a volume of 16 MiB: %d %s", status, text)
	}
	alice.send("POST", "/v1/sandboxes/e2b-"+id+"/start", "")
	if status, text := exec("sleep 1000"); status < 400 && !strings.Contains(text, `"reason":"disk"`) { // the volume is still too large
		t.Errorf("another start: %d %s", status, text)
	}
	if status, text := alice.send("DELETE", "/sandboxes/"+id, ""); status != 204 {
		t.Fatalf("remove: %d %s", status, text)
	}
	files, _ := filepath.Glob(b.home + "/.demesne/server/e2b/namespaces/alice/volume-data/*/b")
	if len(files) != 1 {
		t.Fatalf("the file of the sandbox: %q", files)
	}
	st, err := os.Stat(files[0])
	if err != nil {
		t.Fatal(err)
	}
	var server struct {
		Stored map[string]struct{ Now, Max int64 }
	}
	_, text := alice.send("GET", "/v1/server", "")
	if err := json.Unmarshal([]byte(text), &server); err != nil {
		t.Fatal(err)
	}
	if got := server.Stored["bytes"]; got.Now < 10<<20+st.Size() || got.Now > 10<<20+st.Size()+1<<20 || got.Max != 40<<20 || server.Stored["volumes"].Now != 2 {
		t.Errorf("%s", text)
	}
	if got := put(v, "/c", 1); got != 507 {
		t.Errorf("a file in a full volume: %d", got)
	}
}

// TestServeStoredTemplates checks that repeated builds of a template leave one image, its layers and its kept steps in the
// store, that a build has no more than the ceiling, and that a removed template leaves nothing (M16).
func TestServeStoredTemplates(t *testing.T) {
	g := newGallery(t)
	newSite(t, g)
	_, alice, _ := g.tenants("--allowed-images", "local/bb", "--max-disk", "16m", "--max-stored", "40m")
	store := func() string { // what is in the store, without its indexes
		var all []string
		for _, pattern := range []string{"/blobs/sha256/*", "/steps/*"} {
			names, _ := filepath.Glob(g.store + pattern)
			all = append(all, names...)
		}
		return strings.Join(append(all, g.trees()...), "\n")
	}
	build := func(steps string) (status, text string) {
		t.Helper()
		made := alice.get("POST", "/v3/templates", `{"name":"t"}`)
		path := "/templates/" + made["templateID"].(string) + "/builds/" + made["buildID"].(string)
		if status, text := alice.send("POST", "/v2"+path, `{"fromImage":"local/bb","steps":[`+steps+`]}`); status != 202 {
			return strconv.Itoa(status), text
		}
		for ; ; time.Sleep(10 * time.Millisecond) {
			_, text = alice.send("GET", path+"/status", "")
			var b struct{ Status string }
			if json.Unmarshal([]byte(text), &b); b.Status != "building" {
				return b.Status, text
			}
		}
	}
	run := func(command string) string { return `{"type":"RUN","args":["` + command + `"]}` }
	empty := store()
	most := 0
	for i := range 4 {
		status, text := build(run("dd if=/dev/urandom of=/f bs=2000000 count=1; echo " + strconv.Itoa(i)))
		if status != "ready" {
			t.Fatalf("build %d: %s", i, text)
		}
		if n := strings.Count(store(), "\n"); i == 0 {
			if most = n; n != strings.Count(empty, "\n")+4 {
				t.Fatalf("not one manifest, configuration, layer and step more than\n%s:\n%s", empty, store())
			}
		} else if n != most {
			t.Errorf("after build %d the store has %d files, after the first %d\n%s", i, n, most, store())
		}
	}
	full := store()
	large := run("dd if=/dev/urandom of=/f bs=9000000 count=1") // each layer is within the disk limit
	if status, text := build(large + "," + large); status != "error" || !strings.Contains(text, "the new layers have more than") {
		t.Errorf("too large: %s", text)
	}
	if status, _ := build(run("dd if=/dev/urandom of=/f bs=2000000 count=1") + "," + run("exit 3")); status != "error" {
		t.Errorf("a failed build: %s", status)
	}
	if store() != full {
		t.Errorf("failed builds leave\n%s\nafter\n%s", store(), full)
	}
	if status, text := alice.send("DELETE", "/templates/t", ""); status != 204 {
		t.Errorf("remove: %d %s", status, text)
	}
	if store() != empty {
		t.Errorf("a removed template leaves\n%s\nafter\n%s", store(), empty)
	}
	var server struct {
		Stored map[string]struct{ Now int64 }
	}
	if _, text := alice.send("GET", "/v1/server", ""); json.Unmarshal([]byte(text), &server) != nil || server.Stored["bytes"].Now != 0 || server.Stored["files"].Now != 0 {
		t.Errorf("%s", text)
	}
}
