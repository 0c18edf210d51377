package integration

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
