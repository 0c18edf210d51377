package sandbox

import (
	"testing"

	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/runner/store"
)

func TestErrStopped(t *testing.T) {
	for code, rec := range map[ipc.Code]store.Record{
		ipc.CodeStopped: {Info: runner.Info{State: runner.Stopped}},
		ipc.CodeBusy:    {Info: runner.Info{State: runner.Running}},
		ipc.CodeInvalid: {Snapshot: true},
	} {
		if got := ipc.AsError(ErrStopped(rec)).Code; got != code {
			t.Errorf("%+v: %s, want %s", rec, got, code)
		}
	}
}

// TestKeeps checks the error codes: CodeGone for a removed sandbox, CodeInvalid for a live one whose files are not on
// disk.
func TestKeeps(t *testing.T) {
	for _, row := range []struct {
		name         string
		stay, ending bool
		want         ipc.Code
	}{
		{"kept", true, false, ""},
		{"stopped", true, true, ""},
		{"removed", false, true, ipc.CodeGone},
		{"without a place", false, false, ipc.CodeInvalid},
	} {
		s := New(Env{Machine: &Machine{}}, "s", runner.Spec{})
		s.ending, s.stay = row.ending, row.stay
		close(s.finished)
		err := s.files.persistent.keeps("fork sandbox")
		if row.want == "" && err != nil || row.want != "" && ipc.AsError(err).Code != row.want {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}
