package store

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"demesne/runner"
	"demesne/runner/ipc"
)

func TestHistory(t *testing.T) {
	d, err := OpenHistory(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d.Write(runner.Info{ID: "aa", Name: "web", State: runner.Running})
	if got, err := d.Find("web"); err != nil || got.ID != "aa" {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := d.Find("nope"); ipc.AsError(err).Code != ipc.CodeNoSuchSandbox {
		t.Errorf("err = %v", err)
	}
	d.bury("killed") // the writer is this process, which is alive
	if got, _ := d.Find("aa"); got.State != runner.Running {
		t.Error("a live runner's sandbox was buried")
	}
	d.self.Start++ // now the writer is a different process
	d.Write(runner.Info{ID: "bb", State: runner.Running})
	d.bury("killed")
	if got, _ := d.Find("bb"); got.State != runner.Ended || got.Result == nil || got.Result.Reason != runner.Lost {
		t.Errorf("got %+v", got)
	}
	for i := range 8 * keepEnded {
		d.Ended(runner.Info{ID: strconv.Itoa(i), State: runner.Running})
	}
	if n := len(d.all()); n > 4*keepEnded {
		t.Errorf("%d records kept", n)
	}
	os.WriteFile(filepath.Join(d.path, "cc.json"), []byte("{"), 0o600)
	os.WriteFile(filepath.Join(d.path, "dd.json"), []byte(`{"version":99}`), 0o600)
	if _, err := d.Find("dd"); err == nil {
		t.Error("a record of another version was read")
	}
}
