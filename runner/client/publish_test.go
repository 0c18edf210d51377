package client

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/ipc"
)

func TestAnotherPort(t *testing.T) {
	refused := os.NewSyscallError("listen", unix.EACCES)
	for _, c := range []struct {
		listen string
		err    error
		want   string
	}{
		{"127.0.0.1:80", refused, "ports below 1024 need root: use --publish 127.0.0.1:8080:3000"},
		{"[::1]:443", refused, "ports below 1024 need root: use --publish [::1]:8443:3000"},
		{"127.0.0.1:8080", refused, ""},
		{"unix:/root/s", refused, ""},
		{"127.0.0.1:8080", os.NewSyscallError("bind", unix.EADDRINUSE), "use another port, or --publish unix:PATH:3000"},
		{"unix:/root/s", os.NewSyscallError("bind", unix.EADDRINUSE), ""},
	} {
		if got := another(runner.Port{Listen: c.listen, To: 3000}, c.err); got != c.want {
			t.Errorf("%s, %v: %q, want %q", c.listen, c.err, got, c.want)
		}
	}
}

func TestPublishRefused(t *testing.T) {
	for _, p := range []runner.Port{{Listen: "127.0.0.1:0", To: 1}, {Listen: "unix:relative", To: 1}, {Listen: "127.0.0.1:8080"}, {Listen: "unix:/nowhere/s", To: 1}} {
		var e *ipc.Error
		if err := (&sourceFiles{byName: ipc.Files{}}).listen([]runner.Port{p}); !errors.As(err, &e) || e.Code != ipc.CodeInvalid {
			t.Errorf("%+v: %v", p, err)
		}
	}
}
