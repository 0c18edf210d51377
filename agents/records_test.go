package agents

import (
	"os"
	"testing"

	"demesne/runner"
)

// TestRecords checks that each record is read once, whole, and as soon as its line is complete.
func TestRecords(t *testing.T) {
	path := t.TempDir() + "/records"
	r := &Records{Path: path}
	var got []string
	read := func(text, want string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		f.WriteString(text)
		f.Close()
		got = nil
		r.Read(func(rec runner.UsageRecord) { got = append(got, rec.RequestID) })
		s := ""
		for _, id := range got {
			s += id
		}
		if s != want {
			t.Errorf("%q: read %q, want %q", text, s, want)
		}
	}
	r.Read(func(runner.UsageRecord) { t.Error("a record of no file") })
	read(`{"requestId":"a"}`+"\n"+`{"requestId":`, "a")
	read(`"b"}`, "")
	read("\nnot JSON\n"+`{"requestId":"c"}`+"\n", "bc")
	read("", "")
}
