package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"demesne/integration/fixture"
)

// distribution starts Debian's registry, the reference implementation, with the user "me" and the password "secret". It
// returns its host.
func (b *box) distribution(t testing.TB) string {
	t.Helper()
	path := program(t, "docker-registry")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host := l.Addr().String()
	l.Close()
	dir := b.mkdir("distribution")
	passwords := b.file("passwords", "me:$2a$04$c3xttCZ0Y.XwiPxnwUfh9.TicnpH4GIpfOD4k31XP2eP.RVvwErAi\n", 0o644)
	conf := b.file("distribution.yml", fmt.Sprintf(`version: 0.1
log: {level: error, accesslog: {disabled: true}}
storage: {filesystem: {rootdirectory: %q}}
http: {addr: %q}
auth: {htpasswd: {realm: r, path: %q}}
`, dir, host, passwords), 0o644)
	cmd := b.command(path, "serve", conf)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	eventually(t, "the registry to answer", func() bool {
		resp, err := http.Get("http://" + host + "/v2/")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusUnauthorized
	})
	return host
}

// built imports an image of an uncompressed layer, as a build makes them.
func (g *gallery) built(name string) {
	g.Helper()
	raw, err := fixture.Tar(append(g.busybox(), noise(3<<20)...)...)
	if err != nil {
		g.Fatal(err)
	}
	g.ok("import", "-q", g.file("root.tar", string(raw), 0o644), name)
}

// pushedImage is what push --json prints.
type pushedImage struct {
	Digest string
	Layers []struct{ Digest, State, Type string }
}

func (g *gallery) pushed(args ...string) (p pushedImage) {
	g.Helper()
	text := g.ok(append([]string{"push", "--json", "--tls-verify=false"}, args...)...)
	if err := json.Unmarshal([]byte(text), &p); err != nil || len(p.Layers) == 0 {
		g.Fatalf("push --json: %v: %s", err, text)
	}
	return p
}

// authFile returns where logins are stored, and removes it in the end.
func (g *gallery) authFile() string {
	g.Cleanup(func() { os.RemoveAll(g.run + "/containers") })
	return g.run + "/containers/auth.json"
}

// login logs in with a password from stdin.
func (g *gallery) login(host, password string, flags ...string) result {
	cmd := g.cli(append(append([]string{"login", "--username", "me", "--password-stdin"}, flags...), host)...)
	cmd.Stdin = strings.NewReader(password)
	return g.finish(cmd)
}

// TestPushRegistry pushes to the reference implementation of a registry. Other programs take the image, its digest is stable,
// and nothing is sent twice.
func TestPushRegistry(t *testing.T) {
	g := newGallery(t)
	host := g.distribution(t)
	g.built("local/app")
	ref := host + "/team/app:1"
	g.told(t, "denied", "push", "--tls-verify=false", "local/app", ref)
	if r := g.login(host, "secret\n", "--tls-verify=false"); r.code != 0 || !strings.Contains(r.stdout, "logged in to "+host+" as me") {
		t.Fatalf("login: %+v", r)
	}
	first := g.pushed("local/app", ref)
	if again := g.pushed("local/app", ref); again.Digest != first.Digest || again.Layers[0].State != "present" {
		t.Errorf("again: %+v, first %+v", again, first)
	}
	if other := g.pushed("local/app", host+"/other/app:1"); other.Digest != first.Digest || other.Layers[0].State != "mounted" {
		t.Errorf("to another repository: %+v, first %+v", other, first)
	}
	zstd := g.pushed("--compression", "zstd", "local/app", host+"/team/app:zstd")
	if zstd.Layers[0].State != "pushed" || !strings.HasSuffix(zstd.Layers[0].Type, "+zstd") || !strings.HasSuffix(first.Layers[0].Type, "+gzip") {
		t.Errorf("zstd: %+v", zstd)
	}
	auth := g.authFile()
	for name, p := range map[string]pushedImage{ref: first, host + "/team/app:zstd": zstd} {
		skopeo := func(args ...string) result {
			return g.finish(g.command(program(t, "skopeo"), append([]string{args[0], "--authfile", auth}, args[1:]...)...))
		}
		if r := skopeo("inspect", "--tls-verify=false", "--format", "{{.Digest}}", "docker://"+name); strings.TrimSpace(r.stdout) != p.Digest {
			t.Errorf("skopeo inspect %s: %+v", name, r)
		}
		if r := skopeo("--insecure-policy", "copy", "-q", "--src-tls-verify=false", "docker://"+name, "dir:"+g.dir+"/copied"); r.code != 0 && !strings.Contains(r.stderr, "unknown flag") {
			t.Errorf("skopeo copy %s: %+v", name, r)
		}
		// A pull by digest has the layers in the form that the registry has.
		at := name[:strings.LastIndex(name, ":")] + "@" + p.Digest
		g.file("registries.conf", g.reg.Conf()+fmt.Sprintf("[[registry]]\nlocation = %q\ninsecure = true\n", host), 0o644)
		if r := g.do("run", "--image", at, "--", "/bin/wc", "-c", "/noise"); r.code != 0 || r.stdout != fmt.Sprintf("%d /noise\n", 3<<20) {
			t.Errorf("run %s: %+v", at, r)
		}
	}
	g.podmanPulls(t, ref, auth, first.Digest)
	g.ok("logout", host)
	g.told(t, "denied", "push", "--tls-verify=false", "local/app", host+"/team/app:2")
	g.told(t, "not logged in", "logout", host)
}

// TestPushAhead checks that a build compresses the layers of a named image in a process of its own, that a push then has the
// same digest as one that compresses, that gc removes the compressed form with the image, and when there is no such process.
func TestPushAhead(t *testing.T) {
	s := newSite(t, newGallery(t))
	s.put("noise", strings.Repeat("text ", 1<<20))
	const file = "FROM local/bb\nCOPY noise /noise\n"
	blobs := func() int { return len(names(s.store + "/blobs/sha256")) }
	s.build(file, "-t", "local/app")
	before := blobs()
	want := s.pushed("local/app", s.reg.Ref("first:1"))
	if got := blobs(); got != before {
		t.Errorf("without a linger: %d blobs, before %d", got, before)
	}
	if err := os.RemoveAll(s.store + "/pushed"); err != nil {
		t.Fatal(err)
	}
	s.extra = append(s.extra, "DEMESNE_LINGER=1s")
	s.build(file, "-q", "-t", "local/app")
	eventually(t, "the layers to be compressed", func() bool {
		return len(names(s.store+"/compress")) == 0 && len(names(s.store+"/pushed")) > 0 && len(named("demesne-images")) == 0
	})
	if got := blobs(); got <= before {
		t.Errorf("with a linger: %d blobs, before %d", got, before)
	}
	if got := s.pushed("local/app", s.reg.Ref("second:1")); got.Digest != want.Digest {
		t.Errorf("pushed as %+v, before as %+v", got, want)
	}
	s.ok("rmi", "local/app")
	s.ok("gc", "--build", "--all")
	if left := names(s.store + "/pushed"); len(left) > 0 {
		t.Errorf("gc left %v", left)
	}
	s.ok("images", "check")
	s.ok("gc", "--runner")
}

// podmanPulls has podman pull an image, and compares the digest.
func (g *gallery) podmanPulls(t *testing.T, ref, auth, digest string) {
	t.Helper()
	home := g.mkdir("podman")
	podman := func(args ...string) result {
		cmd := g.command(program(t, "podman"), append([]string{"--log-level=error", "--root", home + "/root", "--runroot", home + "/runroot", "--storage-driver", "vfs"}, args...)...)
		cmd.Env = append(cmd.Env, "HOME="+home, "XDG_RUNTIME_DIR="+home)
		return g.finish(cmd)
	}
	t.Cleanup(func() {
		if os.Getuid() != 0 { // files of subordinate ids
			cmd := g.command(program(t, "podman"), "unshare", "rm", "-rf", home+"/root", home+"/runroot")
			cmd.Env = append(cmd.Env, "HOME="+home, "XDG_RUNTIME_DIR="+home)
			cmd.Run()
		}
		for _, p := range descendants() {
			if strings.HasPrefix(p.name, "podman") || p.name == "catatonit" {
				syscall.Kill(p.pid, syscall.SIGKILL)
			}
		}
	})
	if r := podman("pull", "-q", "--tls-verify=false", "--authfile", auth, ref); r.code != 0 {
		t.Fatalf("podman pull: %+v", r)
	}
	if r := podman("image", "inspect", "--format", "{{.Digest}}", ref); strings.TrimSpace(r.stdout) != digest {
		t.Errorf("podman image inspect: %+v", r)
	}
}

// TestPushInterrupted ends a push in the middle by various signals. No process is left, the tag does not exist, and the next
// push succeeds.
func TestPushInterrupted(t *testing.T) {
	for _, c := range []struct {
		name   string
		sig    syscall.Signal
		victim string
		code   int
	}{{"Ctrl-C", syscall.SIGINT, "", 130}, {"TERM", syscall.SIGTERM, "", 143}, {"kill -9", syscall.SIGKILL, "", 137}, {"kill -9 of the helper", syscall.SIGKILL, "demesne-images", 125}} {
		t.Run(c.name, func(t *testing.T) {
			g := newGallery(t)
			g.built("local/app")
			sending, over := make(chan struct{}, 9), make(chan struct{})
			g.reg.Fail(func(r *http.Request) *fixture.Fault {
				if r.Method == http.MethodPatch {
					_, _ = io.CopyN(io.Discard, r.Body, 1<<20)
					sending <- struct{}{}
					<-over // so that the push does not end before the signal
				}
				return nil
			})
			ref := g.reg.Ref("app:1")
			cmd := g.cli("push", "local/app", ref)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			<-sending
			pids := []int{cmd.Process.Pid}
			if c.victim != "" {
				pids = named(c.victim)
			}
			for _, pid := range pids {
				syscall.Kill(pid, c.sig)
			}
			ended(t, cmd)
			close(over)
			if code := exitCode(cmd.ProcessState.Sys().(syscall.WaitStatus)); code != c.code {
				t.Errorf("exit %d, want %d", code, c.code)
			}
			eventually(t, "every process to be gone", func() bool { return len(descendants()) == 0 })
			if n, _ := g.reg.Count("PUT", "/manifests/"); n != 0 {
				t.Error("a tag was made")
			}
			g.reg.Reset()
			g.ok("images", "check")
			g.ok("push", "local/app", ref)
			g.ok("pull", ref)
		})
	}
}

// TestPushCut checks that a push survives a registry that ends the connection once, and reports one that always does.
func TestPushCut(t *testing.T) {
	g := newGallery(t)
	g.built("local/app")
	var cuts, most atomic.Int64
	most.Store(1)
	g.reg.Fail(func(r *http.Request) *fixture.Fault {
		if r.Method == http.MethodPatch && cuts.Add(1) <= most.Load() {
			_, _ = io.CopyN(io.Discard, r.Body, 1<<20)
			panic(http.ErrAbortHandler)
		}
		return nil
	})
	r := g.do("push", "local/app", g.reg.Ref("app:1"))
	if r.code != 0 || !strings.Contains(r.stderr, ": again in ") {
		t.Errorf("cut once: %+v", r)
	}
	g.ok("pull", g.reg.Ref("app:1"))
	most.Store(1000)
	g.told(t, "no answer", "push", "--compression", "zstd", "local/app", g.reg.Ref("app:2"))
}

// TestPushInput checks names, flags and files that are wrong. Nothing is asked of a registry then.
func TestPushInput(t *testing.T) {
	g := newGallery(t)
	g.built("local/app")
	ref := g.reg.Ref("app:1")
	key := g.file("key.pem", "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nx\n-----END PGP PRIVATE KEY BLOCK-----\n", 0o600)
	for _, c := range []struct {
		part string
		args []string
	}{
		{"names no registry", []string{"push", "local/app"}},
		{"names no registry", []string{"push", "local/app", "team/app:1"}},
		{"names no registry", []string{"push", "local/app", "app"}},
		{"not in the store", []string{"push", "local/ap", ref}},
		{"unknown", []string{"push", "app", ref}},
		{"upper-case", []string{"push", "local/app", g.reg.Ref("App:1")}},
		{"a digest cannot be chosen", []string{"push", "local/app", g.reg.Ref("app@sha256:" + strings.Repeat("0", 64))}},
		{"is not in a registry", []string{"push", "local/app", "oci:" + g.dir + "/layout"}},
		{"needs the name", []string{"push"}},
		{`unexpected argument "x"`, []string{"push", "local/app", ref, "x"}},
		{"known: gzip, zstd, none", []string{"push", "--compression", "xz", "local/app", ref}},
		{"not a number from 1 to 22", []string{"push", "--compression-level", "0", "local/app", ref}},
		{"not 1 to 9", []string{"push", "--compression-level", "10", "local/app", ref}},
		{"known: true, false", []string{"push", "--tls-verify=no", "local/app", ref}},
		{"stdin is not a terminal", []string{"push", "--sign-by", key, "local/app", ref}},
		{"GnuPG", []string{"push", "--sign-by", key, "--sign-passphrase-file", key, "local/app", ref}},
		{"without a key", []string{"push", "--sign-passphrase-file", key, "local/app", ref}},
		{"no such file", []string{"push", "--sign-by", key, "--sign-passphrase-file", key + "x", "local/app", ref}},
		{"no answer", []string{"push", "local/app", "registry.invalid/app:1"}},
		{"add --tls-verify=false", []string{"push", "--tls-verify=true", "local/app", ref}},
		{"needs the name of an image", []string{"tag", "local/app"}},
		{"not in the store", []string{"tag", "local/ap", "local/b"}},
		{"not a valid name", []string{"tag", "local/app", "oci:" + g.dir}},
		{"not a valid name", []string{"tag", "local/app", "sha256:" + strings.Repeat("0", 64)}},
		{"needs a registry", []string{"login"}},
		{"stdin is not a terminal", []string{"login", "registry.test"}},
		{"needs a user name", []string{"login", "--password-stdin", "registry.test"}},
		{"needs a registry", []string{"logout"}},
		{"unexpected argument", []string{"logout", "--all", "registry.test"}},
		{"not HOST", []string{"logout", "registry"}},
	} {
		g.told(t, c.part, c.args...)
	}
	if n := len(g.reg.Requests()); n > 0 {
		t.Errorf("%d requests: %+v", n, g.reg.Requests())
	}
}

// TestPushTwice checks that two pushes at once of the same image succeed, with the same digest.
func TestPushTwice(t *testing.T) {
	g := newGallery(t)
	g.built("local/app")
	var wg sync.WaitGroup
	got := make([]result, 3)
	for i := range got {
		wg.Go(func() { got[i] = g.do("push", "-q", "local/app", g.reg.Ref("app:1")) })
	}
	wg.Wait()
	for _, r := range got {
		if r.code != 0 || r.stdout != got[0].stdout || r.stderr != "" {
			t.Errorf("%+v", r)
		}
	}
}

// TestTag checks that an image gets names, that a name moves, and that rmi removes names one at a time.
func TestTag(t *testing.T) {
	g := newGallery(t)
	g.built("local/app")
	g.ok("tag", "local/app", "local/app:2", "app", "registry.test/team/app:1")
	if all := g.listed(); len(all) != 1 || len(all[0].Names) != 4 {
		t.Fatalf("%+v", all)
	}
	g.ok("rmi", "local/app")
	if got := g.inside("app", "echo here"); got != "here\n" {
		t.Errorf("%q", got)
	}
	ref, _ := g.simple("other:1")
	g.ok("pull", ref)
	g.ok("tag", ref, "app")
	if got := g.ok("run", "--image", "app"); got != "default\n" {
		t.Errorf("the name did not move: %q", got)
	}
	g.ok("gc", "--blobs")
	g.ok("tag", ref, "local/dropped") // an image whose blobs gc dropped is still an image
}

// TestLoginTerminal checks that the password is not shown, that Ctrl-C ends the question, and that the terminal shows again
// what is typed.
func TestLoginTerminal(t *testing.T) {
	g := newGalleryOf(t, fixture.Options{User: "me", Password: "secret"})
	term := g.terminalOf(g.cli("login", g.reg.Host))
	term.expect("Username: ")
	term.typ("me\n")
	term.expect("Password: ")
	term.typ("secret\n")
	term.expect("logged in to " + g.reg.Host + " as me")
	if code := term.wait(); code != 0 || strings.Contains(term.screen(), "secret") {
		t.Errorf("exit %d: %q", code, term.screen())
	}
	auth := g.authFile()
	if st, err := os.Stat(auth); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st, err)
	}
	ref, _ := g.simple("private:1")
	g.ok("pull", ref)
	term = g.terminalOf(g.cli("login", "--username", "me", g.reg.Host))
	term.expect("Password: ")
	term.typ("\x03")
	if code := term.wait(); code != 130 {
		t.Errorf("exit %d: %q", code, term.screen())
	}
}

// TestLoginStored checks wrong passwords, other files, and logins at once.
func TestLoginStored(t *testing.T) {
	g := newGalleryOf(t, fixture.Options{User: "me", Password: "secret"})
	auth := g.authFile()
	for _, c := range []struct{ password, part string }{{"guess\n", "denied"}, {"", "empty"}, {"\n", "empty"}, {strings.Repeat("x", 70<<10), "longer than"}} {
		if r := g.login(g.reg.Host, c.password); r.code != 125 || !strings.Contains(r.stderr, c.part) || len(c.password) > 3 && strings.Contains(r.stderr, strings.TrimSpace(c.password)) {
			t.Errorf("%.10q: %+v", c.password, r)
		}
	}
	if _, err := os.Stat(auth); err == nil {
		t.Error("a wrong password was stored")
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			if r := g.login(fmt.Sprintf("%s/team%d", g.reg.Host, i), "secret"); r.code != 0 {
				t.Errorf("%+v", r)
			}
		})
	}
	wg.Wait()
	raw, err := os.ReadFile(auth)
	if n := strings.Count(string(raw), "/team"); err != nil || n != 4 {
		t.Errorf("%d of 4 logins are stored: %s %v", n, raw, err)
	}
	g.ok("logout", "--all")
	g.mkdir("other")
	other := filepath.Join(g.dir, "other", "auth.json")
	if r := g.login(g.reg.Host, "secret", "--authfile", other); r.code != 0 {
		t.Errorf("%+v", r)
	}
	g.built("local/app")
	ref := g.reg.Ref("team/app:1")
	g.told(t, "denied", "push", "local/app", ref)
	g.ok("push", "--authfile", other, "local/app", ref)
	g.extra = append(g.extra, "REGISTRY_AUTH_FILE="+other)
	g.ok("pull", ref)
}
