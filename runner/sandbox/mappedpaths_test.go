package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMappedFile(t *testing.T) {
	for line, want := range map[string]string{
		"7f0c9d2e6000-7f0c9d2ee000 rw-s 00000000 00:2f 1234                       /root/x.db-shm": "/root/x.db-shm",
		"7f0c9d2e6000-7f0c9d2ee000 -w-s 00000000 00:2f 1234                       /a b  c":        "/a b  c",
		"7f0c9d2e6000-7f0c9d2ee000 rw-p 00000000 00:2f 1234                       /root/x.db":     "",
		"7f0c9d2e6000-7f0c9d2ee000 r--s 00000000 00:2f 1234                       /usr/lib/cache": "",
		"7f0c9d2e6000-7f0c9d2ee000 rw-s 00000000 00:01 9                          /memfd:x":       "",
		"7f0c9d2e6000-7f0c9d2ee000 rw-s 00000000 00:01 9                          /dev/zero":      "",
		"7f0c9d2e6000-7f0c9d2ee000 rw-s 00000000 00:40 9                          /dev/shm/x":     "",
		"7f0c9d2e6000-7f0c9d2ee000 rw-s 00000000 00:2f 7                          /x (deleted)":   "/x (deleted)",
		"7f0c9d2e6000-7f0c9d2ee000 rw-p 00000000 00:00 0                          [heap]":         "",
		"7f0c9d2e6000-7f0c9d2ee000 rw-p 00000000 00:00 0 ":                                        "",
		"": "",
	} {
		if got, ok := mappedFile(line, "00:01"); ok != (want != "") || ok && got != want {
			t.Errorf("%q: %q, %t", line, got, ok)
		}
	}
}

// maps maps files in all ways, one of them called name, until the process is killed.
func maps(name string) error {
	for _, m := range []struct {
		name              string
		open, prot, flags int
	}{
		{"shared", os.O_RDWR, unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED},
		{name, os.O_RDWR, unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED},
		{"private", os.O_RDWR, unix.PROT_READ | unix.PROT_WRITE, unix.MAP_PRIVATE},
		{"read", os.O_RDONLY, unix.PROT_READ, unix.MAP_SHARED},
	} {
		if err := os.WriteFile(m.name, []byte("x"), 0o600); err != nil {
			return err
		}
		f, err := os.OpenFile(m.name, m.open, 0)
		if err != nil {
			return err
		}
		if _, err := unix.Mmap(int(f.Fd()), 0, 1, m.prot, m.flags); err != nil {
			return err
		}
	}
	if _, err := unix.Mmap(-1, 0, 1, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON); err != nil {
		return err
	}
	err := errors.Join(os.Rename("shared", "renamed"), os.WriteFile("ready", []byte("x"), 0o600))
	time.Sleep(time.Hour)
	return err
}

// TestMapped lists the files that real processes share with the disk, by their current names.
func TestMapped(t *testing.T) {
	if name := os.Getenv("NAME"); name != "" {
		t.Fatal(maps(name))
	}
	for name, want := range map[string]error{"a b": nil, `back\slash`: errUnclear} {
		t.Setenv("NAME", name)
		c := shell(t, os.Args[0]+" -test.run '^TestMapped$'; true")
		os.Unsetenv("NAME")
		eventually(t, "the mappings", func() bool { return size(filepath.Join(c.Dir, "ready")) > 0 })
		paths, err := mappedPaths(c.Process.Pid)
		if !errors.Is(err, want) {
			t.Errorf("%q: %v", name, err)
		}
		slices.Sort(paths)
		if all := []string{filepath.Join(c.Dir, name), filepath.Join(c.Dir, "renamed")}; want == nil && !slices.Equal(paths, all) {
			t.Errorf("%q, want %q", paths, all)
		}
	}
	if paths, err := mappedPaths(shell(t, "exec sleep 1000").Process.Pid); len(paths) > 0 || err != nil {
		t.Errorf("%q, %v", paths, err)
	}
}
