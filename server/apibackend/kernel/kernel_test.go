package kernel

import (
	"context"
	"errors"
	"os"
	"testing"

	"demesne/internal/need"
	"demesne/kernels"
	"demesne/kernels/code"
	"demesne/runner"
	"demesne/server"
	"demesne/session"
)

// TestDeath checks that the execution after the report of a kernel's end has a new process, in which the prelude was executed
// before.
func TestDeath(t *testing.T) {
	bin, dir := os.Getenv("DEMESNE_BIN"), t.TempDir()
	need.That(t, bin != "", "DEMESNE_BIN, the directory of the programs")
	for name, value := range map[string]string{
		"DEMESNE_LIBEXEC": bin, "HOME": dir, "XDG_RUNTIME_DIR": dir, "DEMESNE_SANDBOX_ROOT": dir + "/kept", "DEMESNE_OUTPUT_ROOT": dir + "/out", "DEMESNE_LINGER": "0",
	} {
		t.Setenv(name, value)
	}
	service := session.New(session.Options{})
	defer service.Close()
	sb, err := service.Create(t.Context(), session.CreateOptions{Spec: runner.Spec{Lifetime: runner.Attached}}, session.Callbacks{})
	if err != nil {
		t.Fatal(err)
	}
	k, err := Start(t.Context(), service, sb, server.KernelOptions{Language: "python", Prelude: "prepared = 1"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	execute := func(text string) (*kernels.Result, error) {
		return k.Execute(context.WithoutCancel(t.Context()), text, func(kernels.Output) {})
	}
	for _, end := range []string{"import os; os._exit(3)", "import os, threading; threading.Timer(0.1, os._exit, [4]).start()"} {
		_, err := execute(end)
		if err == nil { // it ends while it executes nothing
			s := k.(*kernel).Session
			s.EndOf(s.Kernel())
			_, err = execute("prepared")
		}
		if _, died := errors.AsType[*code.Death](err); !died {
			t.Fatalf("%s: %v", end, err)
		}
		if r, err := execute("prepared"); err != nil || r.Error != nil {
			t.Errorf("after %s: %+v, %v", end, r, err)
		}
	}
}
