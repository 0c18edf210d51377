package inprocess_test

import (
	"errors"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"demesne/client"
	"demesne/server/inprocess"
)

// TestMounts checks that a program's sandboxes mount the directories that its options list, and no other ones.
func TestMounts(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err == nil {
		err = errors.Join(os.WriteFile(dir+"/file", []byte("content"), 0o644), os.Mkdir(dir+"/out", 0o755), os.Symlink("/etc", dir+"/link"), os.Chmod(dir, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	open := func(namespace string, allowed ...string) *client.Client {
		c, err := inprocess.New(inprocess.Options{Namespace: namespace, AllowedMounts: allowed, Log: log.New(writer{t}, "", 0)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c.Client
	}
	for _, namespace := range []string{"", "team"} {
		c := open(namespace, dir, dir+"/out:rw")
		id := made(t, c, client.CreateRequest{Mounts: []client.HostMount{{Source: dir, Target: "/p"}, {Source: dir + "/out", Target: "/out2", Mode: "rw"}}})
		r := must[*client.Result](t)(c.Sandboxes().Exec(soon(t), id, shell("cat /p/file; echo x > /p/no || echo refused; echo x > /out2/yes")))
		if text := r.Stdout.Text + r.Stderr.Text; !strings.HasPrefix(text, "content") || !strings.Contains(text, "refused") || r.ExitCode != 0 {
			t.Errorf("%q: %+v", namespace, r)
		}
		for _, m := range []client.HostMount{{Source: dir, Mode: "rw"}, {Source: dir + "/link"}, {Source: filepath.Dir(dir)}, {Source: "/etc"}} {
			if _, err := c.Sandboxes().Create(soon(t), client.CreateRequest{Mounts: []client.HostMount{m}}); !errors.Is(err, client.ErrInvalid) {
				t.Errorf("%q: %+v: %v", namespace, m, err)
			}
		}
		if _, err := open(namespace).Sandboxes().Create(soon(t), client.CreateRequest{Mounts: []client.HostMount{{Source: dir}}}); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("%q without a list: %v", namespace, err)
		}
	}
}
