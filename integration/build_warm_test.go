package integration

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestBuildWarm checks that a build whose steps are all kept starts no runner, and opens no directory of the context that
// no COPY needs.
func TestBuildWarm(t *testing.T) {
	s := newSite(t, newGallery(t))
	s.put("unused/file", "x")
	s.put("used/file", "y")
	const file = "FROM local/bb\nCOPY used /used\nRUN echo 1 > /one\nWORKDIR /w\n"
	s.build(file)
	libexec := s.mkdir("libexec")
	programs, err := filepath.Glob(filepath.Join(bin, "demesne*"))
	if err != nil || len(programs) == 0 {
		t.Fatal(programs, err)
	}
	for _, p := range programs {
		if filepath.Base(p) != "demesne-runner" {
			err = errors.Join(err, os.Symlink(p, filepath.Join(libexec, filepath.Base(p))))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	before := s.extra
	s.extra = append(before[:len(before):len(before)], "DEMESNE_LIBEXEC="+libexec)
	defer func() { s.extra = before }() // the end of the test needs the runner
	opened := watchOpens(t, s.ctx+"/unused")
	if out := s.build(file); strings.Count(out, "CACHED") != 3 {
		t.Errorf("not all is kept:\n%s", out)
	}
	if opened() {
		t.Error("the build opened a directory that no COPY needs")
	}
	s.put("Containerfile", file+"RUN echo 2 > /two\n")
	if r := s.do("build", "--egress", "none", s.ctx); r.code == 0 {
		t.Error("a step was executed without a runner: the test shows nothing")
	}
	if _, err := os.ReadDir(s.ctx + "/unused"); err != nil || !opened() {
		t.Errorf("reading the directory is not seen: %v", err)
	}
}

// watchOpens returns a function that reports whether a file was opened since the last call.
func watchOpens(t *testing.T, name string) func() bool {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if _, err := unix.InotifyAddWatch(fd, name, unix.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	return func() bool {
		n, _ := unix.Read(fd, make([]byte, 4096))
		return n > 0
	}
}
