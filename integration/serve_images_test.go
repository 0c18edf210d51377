package integration

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"demesne/client"
	"demesne/integration/fixture"
)

// TestServeImages fetches images over /v1 from a registry: the progress, the digest, a private one with credentials, names
// that nothing has, a registry that does not answer, the operator's list, other namespaces, and removal of one in use.
func TestServeImages(t *testing.T) {
	g := newGalleryOf(t, fixture.Options{User: "me", Password: "private-7f3a"})
	ref, img := g.simple("demo:1")
	other, _ := g.simple("other:1")
	login := fmt.Sprintf(`{"auths":{%q:{"auth":"bWU6cHJpdmF0ZS03ZjNh"}}}`, g.reg.Host)
	const gone = "127.0.0.1:1/gone:1"
	api, alice, _ := g.tenants("--allowed-images", ref, "--allowed-images", g.reg.Ref("demo")+":none", "--allowed-images", gone)
	c, ctx := api.client(t, api.key), brief(t)
	var said []string
	pull := func(name string) (*client.Image, error) {
		said = nil
		return c.Images().Pull(ctx, name, func(line string) { said = append(said, line) })
	}
	fails := func(what, name, part string, is error) {
		t.Helper()
		if got, err := pull(name); !errors.Is(err, is) || !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), g.home) {
			t.Errorf("%s: %+v %v", what, got, err)
		}
	}
	fails("without credentials", ref, "denied", client.ErrInvalid)
	g.file("h/.docker/config.json", login, 0o600)
	defer os.RemoveAll(g.home + "/.docker")
	fails("not on the list", other, "the operator does not allow", client.ErrInvalid)
	fails("no such tag", g.reg.Ref("demo")+":none", "not", client.ErrInvalid)
	fails("no image", "//", "", client.ErrInvalid)
	fails("a path", "oci:/etc", "", client.ErrInvalid)
	for who, token := range map[string]string{"the operator": api.key, "a namespace": alice.token} {
		c := api.client(t, token)
		var e *client.Error
		if _, err := c.Images().Pull(ctx, gone, nil); !errors.As(err, &e) || e.Code != 502 || !strings.Contains(e.Message, "refused") {
			t.Errorf("a registry that does not answer, for %s: %v %+v", who, err, e)
		}
		if _, err := c.Run(ctx, client.RunRequest{Command: client.Command{Command: "true"}, Image: gone}); !errors.As(err, &e) || e.Code != 502 {
			t.Errorf("a run from a registry that does not answer, for %s: %v", who, err)
		}
	}

	got, err := pull(ref)
	if err != nil || got.Digest != digestOf(t, img) || !slices.Contains(got.Names, ref) || got.Size == 0 || got.Platform == "" {
		t.Fatalf("%+v %v", got, err)
	}
	if !slices.ContainsFunc(said, func(line string) bool { return strings.HasPrefix(line, "sha256:") && strings.Contains(line, " of ") }) {
		t.Errorf("the progress: %q", said)
	}
	g.reg.Reset()
	if again, err := pull(ref); err != nil || again.Digest != got.Digest {
		t.Errorf("again: %+v %v", again, err)
	}
	if _, n := g.reg.Count(http.MethodGet, "/blobs/"); n > 0 {
		t.Errorf("a second pull fetched %d bytes of layers", n)
	}
	list := func(c *client.Client) []client.Image {
		t.Helper()
		all, err := c.Images().List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if all := list(c); len(all) != 1 || all[0].Digest != got.Digest || all[0].InUse {
		t.Errorf("%+v", all)
	}

	// Callers of a namespace share it, and may not remove it.
	ours := api.client(t, alice.token)
	if all := list(ours); len(all) != 1 || !slices.Contains(all[0].Names, ref) {
		t.Errorf("a namespace lists %+v", all)
	}
	if err := ours.Images().Remove(ctx, ref); !errors.Is(err, client.ErrDenied) {
		t.Errorf("a namespace removes it: %v", err)
	}
	if _, err := ours.Images().Pull(ctx, other, nil); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("a namespace pulls another: %v", err)
	}

	// A sandbox uses it.
	if r, err := ours.Run(ctx, client.RunRequest{Command: client.Command{Command: "echo inside; ls /etc/debian_version"}, Image: ref}); err != nil || r.Stdout.Text != "inside\n" || r.ExitCode == 0 {
		t.Errorf("%+v %v", r, err)
	}
	if _, err := c.Run(ctx, client.RunRequest{Command: client.Command{Command: "true"}, Image: other}); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("an image that is not on the list: %v", err)
	}
	sb, err := c.Sandboxes().Create(ctx, client.CreateRequest{Settings: client.Settings{Image: ref}})
	if err != nil || sb.Image != ref {
		t.Fatalf("%+v %v", sb, err)
	}
	if all := list(c); len(all) != 1 || !all[0].InUse {
		t.Errorf("while a sandbox uses it: %+v", all)
	}
	if err := c.Images().Remove(ctx, ref); !errors.Is(err, client.ErrConflict) {
		t.Errorf("removed while a sandbox uses it: %v", err)
	}
	if err := c.Sandboxes().Remove(ctx, sb.ID); err != nil {
		t.Error(err)
	}
	if err := c.Images().Remove(ctx, ref); err != nil {
		t.Error(err)
	}
	if err := c.Images().Remove(ctx, ref); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("removed again: %v", err)
	}
	if all := list(c); len(all) != 0 {
		t.Errorf("after its removal: %+v", all)
	}

	// A client that leaves ends its pull; the next one succeeds.
	g.reg.Fail(func(r *http.Request) *fixture.Fault {
		if strings.Contains(r.URL.Path, "/blobs/") {
			return &fixture.Fault{Rate: 10_000}
		}
		return nil
	})
	soon, leave := context.WithCancel(ctx)
	if _, err := c.Images().Pull(soon, ref, func(string) { leave() }); !errors.Is(err, context.Canceled) {
		t.Errorf("a client that leaves: %v", err)
	}
	leave()
	g.reg.Fail(nil)
	if _, err := pull(ref); err != nil {
		t.Errorf("after a client has left: %v", err)
	}
	for name, text := range map[string]string{"the list": fmt.Sprint(list(c)), "the messages": api.said()} {
		if strings.Contains(text, "private-7f3a") || strings.Contains(text, "bWU6cHJpdmF0ZS03ZjNh") {
			t.Errorf("%s has the credentials: %s", name, text)
		}
	}
	api.stop(syscall.SIGTERM)
}

// TestServePrivateBase builds templates by E2B's SDK from a registry that needs a login. A wrong password is the SDK's own error.
// The login is in no file, message or layer, and the base has no name afterwards.
func TestServePrivateBase(t *testing.T) {
	const password = "hunter2-of-the-registry"
	g := newGalleryOf(t, fixture.Options{User: "me", Password: password})
	ref, _ := g.simple("private:1")
	for _, how := range []string{"registry", "gcp"} {
		if how == "gcp" {
			g.reg.Close()
			g = newGalleryOf(t, fixture.Options{User: "_json_key", Password: `{"private_key":"` + password + `"}`})
			ref, _ = g.simple("private:1")
		}
		api := g.serveAPI("--egress", "none")
		if r := g.finish(g.sdk(api, "clients/e2b/registry.mjs", how, ref, password)); r.code != 0 {
			t.Errorf("%s: %+v\n%s", how, r, api.said())
		}
		api.stop(syscall.SIGTERM)
		if strings.Contains(api.said(), password) {
			t.Error("the server's messages have the password")
		}
		for _, dir := range []string{g.home, g.store} {
			g.nowhere(dir, password)
			g.nowhere(dir, base64.StdEncoding.EncodeToString([]byte("me:"+password)))
		}
		if names := g.ok("images"); strings.Contains(names, "private") || strings.Contains(names, "-base") || !strings.Contains(names, "local/e2b-") {
			t.Errorf("the names in the store: %s", names)
		}
	}
}
