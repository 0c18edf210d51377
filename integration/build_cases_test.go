package integration

import (
	"archive/tar"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"demesne/integration/fixture"
)

// buildCase is a row of testdata/build: a Containerfile, its context, and the result that the build must have.
// docs/explanation/build-cases.md says which published cases the rows stand for.
type buildCase struct {
	name    string
	like    []string // published cases
	flags   []string
	ids     bool   // run needs several user ids
	peer    string // why buildah of Debian differs; empty: it does not
	context string // shell text that makes the context
	file    string
	see     string // shell text, executed last in the target
	run     string // shell text, executed in a sandbox of the image; or CMD
	want    string // the output of see, or of run
	fails   string // parts of the error, a line each
}

// buildCases reads a table. A row begins with "=== NAME" and has fields "KEY: VALUE" and parts below "--- PART".
func buildCases(t *testing.T, path string) (all []buildCase) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range strings.Split("\n"+string(raw), "\n=== ")[1:] {
		parts := strings.Split(row, "\n--- ")
		name, head, _ := strings.Cut(parts[0], "\n")
		c := buildCase{name: name}
		for _, line := range strings.Split(strings.TrimSpace(head), "\n") {
			key, value, _ := strings.Cut(line, ": ")
			switch key {
			case "":
			case "like":
				for _, like := range strings.Split(strings.ReplaceAll(value, `\,`, "\x00"), ", ") {
					c.like = append(c.like, strings.ReplaceAll(like, "\x00", ","))
				}
			case "flags":
				c.flags = strings.Fields(value)
			case "ids":
				c.ids = true
			case "peer":
				c.peer = value
			default:
				t.Fatalf("%s: %s: unknown field %q", path, name, line)
			}
		}
		part := map[string]*string{"context": &c.context, "file": &c.file, "see": &c.see, "run": &c.run, "want": &c.want, "fails": &c.fails}
		for _, p := range parts[1:] {
			kind, text, _ := strings.Cut(p, "\n")
			if part[kind] == nil {
				t.Fatalf("%s: %s: unknown part %q", path, name, kind)
			}
			*part[kind] = strings.TrimPrefix(strings.Trim(text, "\n")+"\n", "\n")
		}
		all = append(all, c)
	}
	return all
}

// The lines around what a case sees.
const seenBegin, seenEnd = "=====begin", "=====end"

// text returns the Containerfile, with a last step that prints what the case wants to see. The step needs no
// here-document, so that older builders parse it.
func (c *buildCase) text() string {
	if c.see == "" {
		return c.file
	}
	script := base64.StdEncoding.EncodeToString([]byte(c.see))
	return c.file + fmt.Sprintf("USER 0\nSHELL [\"/bin/sh\", \"-c\"]\nRUN echo %s; echo %s | base64 -d > /tmp/see; sh /tmp/see 2>&1; echo %s\n", seenBegin, script, seenEnd)
}

// seen returns what the last step printed, without the heads of progress lines.
func seen(progress string) string {
	var out strings.Builder
	on := false
	head := ""
	for line := range strings.Lines(progress) {
		before, rest, found := strings.Cut(line, seenBegin+"\n")
		switch {
		case found && rest == "":
			on, head = true, before
		case strings.HasSuffix(line, seenEnd+"\n") && on:
			return out.String()
		case on && strings.TrimSpace(line) == strings.TrimSpace(head):
			out.WriteString("\n")
		case on:
			out.WriteString(strings.TrimPrefix(line, head))
		}
	}
	return out.String()
}

// prepare writes the context and the Containerfile of a case.
func (c *buildCase) prepare(t *testing.T, g *gallery) (file, dir string) {
	t.Helper()
	dir = g.mkdir("cases/" + c.name + "/context")
	file = g.file("cases/"+c.name+"/Containerfile", c.text(), 0o644)
	if r := g.do0("/bin/sh", dir, "set -e; umask 022; "+c.context); r.code != 0 {
		t.Fatalf("context: %+v", r)
	}
	return file, dir
}

// do0 executes shell text in a directory, as the box's user.
func (g *gallery) do0(shell, dir, script string) result {
	cmd := g.command(shell, "-c", script)
	cmd.Dir = dir
	return g.finish(cmd)
}

// check compares the result of a build with the row.
func (c *buildCase) check(t *testing.T, r result) {
	t.Helper()
	switch got := seen(r.stderr); {
	case c.fails == "" && r.code != 0:
		t.Errorf("exit %d\n%s\n%s", r.code, lastLines(r.stderr), c.file)
	case c.fails == "" && c.run == "" && got != c.want:
		t.Errorf("got\n%swant\n%s%s", got, c.want, c.file)
	case c.fails != "":
		for part := range strings.Lines(c.fails) {
			if part = strings.TrimSpace(part); r.code == 0 || !strings.Contains(lastLines(r.stderr), part) {
				t.Errorf("exit %d\n%s\nwant %q\n%s", r.code, lastLines(r.stderr), part, c.file)
			}
		}
	}
}

// base makes local/base: busybox with all its commands. Other programs take the mode of a hard link for the file's.
func (s *site) base() {
	s.Helper()
	entries := s.busybox()
	for i := range entries {
		if entries[i].Typeflag == tar.TypeLink {
			entries[i].Mode = 0o755
		}
	}
	raw, err := fixture.Tar(entries...)
	if err != nil {
		s.Fatal(err)
	}
	s.ok("import", s.file("linked.tar", string(raw), 0o644), "local/bb")
	s.build("FROM local/bb\nRUN mkdir /usr/bin && busybox --install -s /usr/bin\n", "-t", "local/base")
}

func caseFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/build/*.cases")
	if err != nil || len(files) == 0 {
		t.Fatalf("tables: %q %v", files, err)
	}
	return files
}

// TestBuildCases builds the rows of testdata/build.
func TestBuildCases(t *testing.T) {
	needIDs(t)
	s := newSite(t, newGallery(t))
	t.Cleanup(func() { os.RemoveAll(s.home + "/.cache") }) // an ordinary user's list of short names, as podman has it
	s.base()
	t.Run("rows", func(t *testing.T) {
		for _, path := range caseFiles(t) {
			for _, c := range buildCases(t, path) {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					file, dir := c.prepare(t, s.gallery)
					c.check(t, s.do(append(append([]string{"build", "--egress", "none", "--progress", "plain", "-f", file}, c.flags...), dir)...))
				})
			}
		}
	})
	eventually(t, "every sandbox to be gone", func() bool { return s.ok("ls", "-q") == "" })
}

// TestBuildCasesPeer builds the rows with Debian's buildah too, which must make the same of them, but for those that say why
// it does not.
func TestBuildCasesPeer(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("buildah's chroot isolation needs root here")
	}
	buildah := program(t, "buildah")
	s := newSite(t, newGallery(t))
	s.base()
	s.ok("save", "local/base", "-o", s.dir+"/base.tar", "--format", "oci")
	storage := []string{"--root", s.mkdir("peer/root"), "--runroot", s.mkdir("peer/run"), "--storage-driver", "vfs"}
	peer := func(args ...string) result {
		return s.finish(s.command(buildah, slices.Concat(storage, args)...))
	}
	if r := peer("pull", "-q", "oci-archive:"+s.dir+"/base.tar"); r.code != 0 {
		t.Fatalf("pull: %+v", r)
	} else if r := peer("tag", strings.TrimSpace(r.stdout), "localhost/local/base"); r.code != 0 {
		t.Fatalf("tag: %+v", r)
	}
	built := 0
	for _, path := range caseFiles(t) {
		for _, c := range buildCases(t, path) {
			if c.peer != "" || c.fails != "" {
				continue
			}
			if built++; built%9 != 1 { // a sample: the peer copies its whole storage for each step
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				file, dir := c.prepare(t, s.gallery)
				var r result
				for range 3 { // on a busy machine, the peer loses the last output of a command
					r = peer(slices.Concat([]string{"bud", "--isolation", "chroot", "--layers=false", "--pull-never", "-f", file}, c.flags, []string{dir})...)
					r.stderr = r.stdout + r.stderr
					if r.code != 0 || strings.Count(r.stderr, seenEnd+"\n") > 1 { // the first is the instruction's
						break
					}
				}
				c.check(t, r)
			})
		}
	}
	if built < 30 {
		t.Errorf("%d rows were compared", built)
	}
}
