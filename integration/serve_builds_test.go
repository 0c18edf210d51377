package integration

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"demesne/client"
)

// packed returns a tar of entries; a link has a target in place of content.
func packed(t *testing.T, entries ...tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		content := h.Uname // carries the content of a file
		h.Uname, h.Size, h.Mode = "", int64(len(content)), 0o644
		err := w.WriteHeader(&h)
		if err == nil {
			_, err = w.Write([]byte(content))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	return &b
}

// TestServeBuild builds images over /v1: of an uploaded context, also a hostile one, and two at once with one tag. A directory of
// this machine is for the server's user at its socket. A client that disconnects ends its build.
func TestServeBuild(t *testing.T) {
	g := newGallery(t)
	base, _ := g.simple("base:1")
	g.ok("pull", base)
	api, alice, _ := g.tenants("--egress", "none")
	c, ctx := api.client(t, api.key), brief(t)
	file := func(steps string) tar.Header {
		return tar.Header{Name: "Containerfile", Typeflag: tar.TypeReg, Uname: "FROM " + base + "\n" + steps}
	}
	var said []string
	_, err := c.Images().Build(ctx, client.BuildRequest{Tag: "local/app", Args: []string{"WORD=given"}, Target: "one"},
		packed(t, file("ARG WORD\nCOPY a /a\nRUN echo made of $WORD > /made\n"+"FROM scratch AS two\n"), tar.Header{Name: "a", Typeflag: tar.TypeReg, Uname: "copied"}), func(l string) { said = append(said, l) })
	if err == nil {
		t.Error("a stage that does not exist")
	}
	q := client.BuildRequest{Tag: "local/app", Args: []string{"WORD=given"}}
	context1 := func() *bytes.Buffer {
		return packed(t, file("ARG WORD\nCOPY a /a\nRUN echo made of $WORD > /made\n"), tar.Header{Name: "a", Typeflag: tar.TypeReg, Uname: "copied"})
	}
	built, err := c.Images().Build(ctx, q, context1(), func(l string) { said = append(said, l) })
	if err != nil || !strings.HasPrefix(built.Digest, "sha256:") || !strings.Contains(strings.Join(said, "\n"), "RUN echo made") {
		t.Fatalf("%+v %v %q", built, err, said)
	}
	if got := g.inside("local/app", "cat /a /made"); got != "copiedmade of given\n" {
		t.Errorf("the image has %q", got)
	}

	// A hostile context: nothing of this machine is in the image, and nothing is written here.
	secret := g.file("private", "of this machine", 0o600)
	hostile := packed(t, file("COPY . /ctx\nRUN cat /ctx/link /ctx/x/private; true\n"),
		tar.Header{Name: "../escaped", Typeflag: tar.TypeReg, Uname: "x"}, tar.Header{Name: "/escaped-too", Typeflag: tar.TypeReg, Uname: "x"},
		tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: secret}, tar.Header{Name: "x", Typeflag: tar.TypeSymlink, Linkname: g.home},
		tar.Header{Name: "x/planted", Typeflag: tar.TypeReg, Uname: "x"}, tar.Header{Name: "hard", Typeflag: tar.TypeLink, Linkname: secret})
	said = nil
	_, err = c.Images().Build(ctx, client.BuildRequest{Tag: "local/hostile"}, hostile, func(l string) { said = append(said, l) })
	if text := strings.Join(said, "\n"); strings.Contains(text, "of this machine") {
		t.Errorf("the build read a file of this machine: %v %s", err, text)
	}
	for _, path := range []string{g.home + "/planted", g.home + "/.demesne/escaped", g.home + "/.demesne/server/escaped", "/escaped-too"} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("the context wrote %s", path)
		}
	}

	// Requests that the server refuses.
	for _, c2 := range []struct {
		q    client.BuildRequest
		want string
	}{
		{client.BuildRequest{Tag: "local/x", Context: g.home}, "--allowed-mounts"}, {client.BuildRequest{Tag: "local/x", Args: []string{"HOME"}}, "NAME=VALUE"},
		{client.BuildRequest{Tag: "local/x", File: "../../etc/passwd"}, "not a path in the context"}, {client.BuildRequest{Tag: "Not/A Name"}, "name"},
	} {
		if _, err := c.Images().Build(ctx, c2.q, context1(), nil); !errors.Is(err, client.ErrInvalid) || !strings.Contains(err.Error(), c2.want) {
			t.Errorf("%+v: %v", c2.q, err)
		}
	}
	if _, err := api.client(t, alice.token).Images().Build(ctx, q, context1(), nil); !errors.Is(err, client.ErrDenied) {
		t.Errorf("a namespace: %v", err)
	}

	// Two builds of one tag at once: both end, and the tag is one of them.
	var wg sync.WaitGroup
	digests := make([]string, 2)
	for i, word := range []string{"first", "second"} {
		wg.Go(func() {
			b, err := c.Images().Build(ctx, client.BuildRequest{Tag: "local/both", Args: []string{"WORD=" + word}}, context1(), nil)
			if err != nil {
				t.Errorf("%s: %v", word, err)
				return
			}
			digests[i] = b.Digest
		})
	}
	wg.Wait()
	if got := g.inside("local/both", "cat /made"); digests[0] == digests[1] || got != "made of first\n" && got != "made of second\n" {
		t.Errorf("%q: %q", digests, got)
	}

	// A client that disconnects.
	short, hangUp := context.WithCancel(ctx)
	_, err = c.Images().Build(short, client.BuildRequest{Tag: "local/endless"}, packed(t, file("RUN echo began; sleep 1000\n")), func(l string) {
		if strings.Contains(l, "began") {
			hangUp()
		}
	})
	hangUp()
	if err == nil {
		t.Error("an endless build ended")
	}
	eventually(t, "the build to end", func() bool { return sleepers("1000") == 0 })
	if names := g.ok("images"); strings.Contains(names, "endless") || strings.Contains(names, "local/x") {
		t.Errorf("images: %s", names)
	}
}

// TestServeBuildHere builds from a directory of this machine, by the server's user at its socket.
func TestServeBuildHere(t *testing.T) {
	g := newGallery(t)
	if g.uid > 0 {
		t.Skip("the socket is the other user's")
	}
	base, _ := g.simple("base:1")
	g.ok("pull", base)
	g.file("project/Containerfile", "FROM "+base+"\nCOPY word /word\n", 0o644)
	g.file("project/word", "here\n", 0o644)
	os.Symlink("/etc", g.dir+"/project/link")
	send, key := g.serveSocket("--egress", "none")
	if status, text := send(key, "POST", "/v1/builds?tag=local/here&context="+g.dir+"/project", ""); status != 200 || !strings.Contains(text, "event: done") {
		t.Fatalf("%d %s", status, text)
	}
	if got := g.inside("local/here", "cat /word"); got != "here\n" {
		t.Errorf("the image has %q", got)
	}
	for _, context := range []string{g.dir + "/project/link", g.dir + "/project/../project", g.dir + "/project/word", "project", g.dir + "/none"} {
		if status, text := send(key, "POST", "/v1/builds?tag=local/no&context="+context, ""); status != 400 {
			t.Errorf("%s: %d %s", context, status, text)
		}
	}
}
