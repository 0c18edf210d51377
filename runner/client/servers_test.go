package client

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"demesne/runner"
)

// TestServedPaths checks that a runner cannot have a directory made or removed by the path of a socket: a runner of real root has
// fewer rights than its client.
func TestServedPaths(t *testing.T) {
	root := t.TempDir()
	at := func(name string) string { return filepath.Join(root, name) }
	socket := func(path string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		l.Close()
	}
	const ours = "20261128-080502-3eb5a20c"
	other, output := at("other/docker.sock"), at("20261128-080502-00000000/docker.sock")
	socket(other)
	if err := os.MkdirAll(filepath.Join(filepath.Dir(output), "result"), 0o700); err != nil {
		t.Fatal(err)
	}
	socket(at(ours + "/docker.sock"))
	for _, path := range []string{other, output, root + "/x/../other/docker.sock", "docker.sock", ""} {
		awaitServers(t.Context(), []string{path})
		if _, err := os.Stat(filepath.Dir(other)); err != nil {
			t.Errorf("%q: %v", path, err)
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(output), "result")); err != nil {
			t.Errorf("%q: %v", path, err)
		}
	}
	if err := awaitServers(t.Context(), []string{at(ours + "/docker.sock")}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(at(ours)); !os.IsNotExist(err) {
		t.Errorf("the directory of a killed server: %v", err)
	}
	for _, path := range []string{at("new/docker.sock"), at(ours + "/other.sock")} {
		s := &sourceFiles{}
		if err := s.startServer(&runner.Mount{Server: serverDocker, Socket: true, Source: path}, true); err == nil {
			t.Errorf("%q has a server", path)
		}
		if _, err := os.Stat(filepath.Dir(path)); !os.IsNotExist(err) {
			t.Errorf("%q: %v", path, err)
		}
	}
}
