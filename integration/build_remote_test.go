package integration

import (
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"demesne/integration/fixture"
)

// fileServer serves files that a test changes.
type fileServer struct {
	text atomic.Pointer[string]
	full atomic.Int32 // answers with content
	same atomic.Int32 // answers "304 Not Modified"
}

func (f *fileServer) set(text string) { f.text.Store(&text) }

func (f *fileServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text := *f.text.Load()
	switch r.URL.Path {
	case "/away":
		http.Redirect(w, r, "http://dark.test/x", http.StatusFound)
		return
	case "/gone":
		http.NotFound(w, r)
		return
	case "/cut":
		w.Header().Set("Content-Length", "1000")
		fmt.Fprint(w, "short")
		return
	}
	tag := fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(text)))
	w.Header().Set("ETag", tag)
	w.Header().Set("Last-Modified", time.Unix(1000000000, 0).UTC().Format(http.TimeFormat))
	if r.Header.Get("If-None-Match") == tag {
		f.same.Add(1)
		w.WriteHeader(http.StatusNotModified)
		return
	}
	f.full.Add(1)
	fmt.Fprint(w, text)
}

// alice returns the ids that alice's files have in a build of onBuildInternet: this process may have only one id.
func alice(t *testing.T, uid, gid string) (string, string) {
	t.Helper()
	ids, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		t.Fatal(err)
	}
	if words := strings.Fields(string(ids)); len(words) == 3 && words[2] == "1" {
		return "0", "0"
	}
	return uid, gid
}

// onBuildInternet runs body with a base, a context, and servers: files.test, git.test and dark.test.
func onBuildInternet(t *testing.T, body func(n *internet, s *site, f *fileServer)) {
	onInternet(t, func(n *internet) {
		f := &fileServer{}
		f.set("first\n")
		web := &http.Server{Handler: f}
		n.Cleanup(func() { web.Close() })
		cert := n.trusted("8.3.3.3 files.test\n8.1.1.1 git.test\n8.2.2.2 dark.test\n127.0.0.1 localhost\n")
		go web.Serve(n.listen("8.3.3.3:80"))
		go web.Serve(tls.NewListener(n.listen("8.3.3.3:443"), &tls.Config{Certificates: []tls.Certificate{cert}}))
		g := &gallery{box: n.box}
		g.cli = func(args ...string) *exec.Cmd { return g.command("demesne", args...) }
		raw, err := fixture.Tar(g.busybox()...)
		if err != nil {
			n.Fatal(err)
		}
		g.ok("import", g.file("root.tar", string(raw), 0o644), "local/bb")
		body(n, &site{g, g.mkdir("ctx")}, f)
	})
}

// TestBuildAddURL checks files from servers: their names, modes and times, the cache, checksums, and the egress rules.
func TestBuildAddURL(t *testing.T) {
	onBuildInternet(t, func(n *internet, s *site, f *fileServer) {
		allow := []string{"-t", "local/app", "--egress", "none", "--allow-domain", "files.test"}
		file := "FROM local/bb\nADD https://files.test/dir/name.txt?v=1 /d/\nADD --chown=alice:staff --chmod=755 http://files.test/other /tool\nRUN cat /d/name.txt\n"
		s.build(file, allow...)
		uid, gid := alice(t, "1000", "50")
		s.see(t, "cat /d/name.txt /tool; stat -c '%a %u:%g %Y' /d/name.txt /tool", "first\nfirst\n600 0:0 1000000000\n755 "+uid+":"+gid+" 1000000000\n")
		if out := s.build(file, allow...); strings.Count(out, " CACHED ") != 3 || f.full.Load() != 2 || f.same.Load() != 2 {
			n.Errorf("again: %d whole answers, %d that nothing changed\n%s", f.full.Load(), f.same.Load(), out)
		}
		f.set("second\n")
		if out := s.build(file, allow...); strings.Contains(out, " CACHED ") {
			n.Errorf("changed:\n%s", out)
		}
		s.see(t, "cat /d/name.txt /tool", "second\nsecond\n")

		sum := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("second\n")))
		summed := "FROM local/bb\nADD --checksum=" + sum + " https://files.test/summed /\n"
		s.build(summed, allow...)
		before := f.full.Load()
		if out := s.build(summed, "--egress", "none"); !strings.Contains(out, " CACHED ") || f.full.Load() != before {
			n.Errorf("a file with a checksum was asked for again:\n%s", out)
		}
		f.set("third\n")
		s.refused(t, "FROM local/bb\nRUN true\nADD --checksum="+sum+" https://files.test/changed /\n", []string{"Containerfile:3:", "the file has sha256:", sum}, allow...)

		packed, err := fixture.Tar(fixture.File("in/side", "x\n"))
		if err != nil {
			n.Fatal(err)
		}
		f.set(gzipped(t, packed))
		s.build("FROM local/bb\nADD --unpack=true https://files.test/a.tgz /u\nADD https://files.test/a.tgz /p/\n", allow...)
		s.see(t, "cat /u/in/side; ls /p", "x\na.tgz\n")

		for url, parts := range map[string][]string{
			"https://files.test/gone": {"404 Not Found"},
			"https://files.test/cut":  {"unexpected EOF"},
			"https://files.test/away": {"egress forbids dark.test:80 (no rule)"},
			"https://dark.test/x":     {"egress forbids dark.test:443 (no rule)"},
		} {
			s.refused(t, "FROM local/bb\n\nADD "+url+" /x\n", append(parts, "Containerfile:3: ADD "+url), allow...)
		}
		s.refused(t, "FROM local/bb\nADD https://files.test/x /x\n", []string{"Containerfile:2:", "--egress none forbids it"}, "--egress", "none")
		if n.heard("dark.test") {
			n.Errorf("dark.test was asked")
		}
		if left := s.ok("ls", "-q"); left != "" {
			n.Errorf("sandboxes are left: %q", left)
		}
	})
}

// TestBuildNetworkNone checks that with --network none no RUN has a network while ADD has one, that results are kept apart,
// and that the network of this machine is refused.
func TestBuildNetworkNone(t *testing.T) {
	onBuildInternet(t, func(n *internet, s *site, f *fileServer) {
		file := "FROM local/bb\nADD https://files.test/x /x\nRUN --network=default tail -n +3 /proc/net/dev | wc -l > /n\n"
		flags := []string{"-t", "local/app", "--egress", "package-managers", "--allow-domain", "files.test"}
		s.build(file, flags...)
		s.see(t, "cat /n", "2\n")
		if out := s.build(file, append(flags, "--network", "none")...); strings.Count(out, " CACHED ") != 1 {
			n.Errorf("with --network none:\n%s", out)
		}
		s.see(t, "cat /x /n", "first\n1\n")
		if out := s.build(file, append(flags, "--network=default")...); strings.Count(out, " CACHED ") != 2 {
			n.Errorf("with --network default:\n%s", out)
		}
		for network, want := range map[string]string{"host": "never has this machine's network", "bridge": "unknown (known: none, default)", "non": "unknown"} {
			if r := s.do("build", "--network", network, s.ctx); r.code != 2 || !strings.Contains(r.stderr, want) || !strings.Contains(r.stderr, "--egress none") {
				n.Errorf("--network %s: %+v", network, r)
			}
		}
	})
}

// TestBuildAddGit checks repositories: references, directories, .git, checksums, submodules and hostile links.
func TestBuildAddGit(t *testing.T) {
	onBuildInternet(t, func(n *internet, s *site, f *fileServer) {
		git := program(n, "git")
		need(n, exists("/usr/lib/git-core/git-http-backend"), "git-http-backend")
		work := n.mkdir("work")
		run := func(args ...string) string {
			cmd := exec.Command(git, append([]string{"-C", work, "-c", "user.name=a", "-c", "user.email=a@b"}, args...)...)
			cmd.Env = append(cmd.Environ(), "HOME="+n.home)
			out, err := cmd.CombinedOutput()
			if err != nil {
				n.Fatalf("git %q: %v: %s", args, err, out)
			}
			return strings.TrimSpace(string(out))
		}
		run("init", "-q", "-b", "main")
		n.file("work/a", "1\n", 0o644)
		n.file("work/sub/b", "b\n", 0o755)
		run("add", "-A")
		run("commit", "-q", "-m", "one")
		run("tag", "-a", "v1", "-m", "v1")
		first := run("rev-parse", "HEAD")
		n.file("work/a", "2\n", 0o644)
		run("commit", "-q", "-a", "-m", "two")
		publish := func() {
			n.once("/bin/rm", "-rf", n.dir+"/repo.git")
			n.once(git, "clone", "-q", "--bare", work, n.dir+"/repo.git")
		}
		publish()
		const url = "http://git.test/repo.git"
		allow := []string{"-t", "local/app", "--egress", "none", "--allow-domain", "git.test"}
		file := "FROM local/bb\nADD " + url + " /main\nADD " + url + "#v1:sub /sub/\nADD --keep-git-dir --chown=alice " + url + "#" + first + " /kept\n" +
			"ADD --checksum=" + first[:10] + " " + url + "#v1 /summed\n"
		s.build(file, allow...)
		uid, _ := alice(t, "1000", "50")
		s.see(t, "cat /main/a /sub/b /kept/a /summed/a; ls -A /main /sub; stat -c '%a %u' /main/a /sub/b /kept/a; cat /kept/.git/HEAD",
			"2\nb\n1\n1\n/main:\na\nsub\n\n/sub:\nb\n644 0\n755 0\n644 "+uid+"\n"+first+"\n")
		if out := s.build(file, allow...); strings.Count(out, " CACHED ") != 4 {
			n.Errorf("again:\n%s", out)
		}
		n.file("work/a", "3\n", 0o644)
		run("commit", "-q", "-a", "-m", "three")
		publish()
		if out := s.build(file, allow...); strings.Count(out, " CACHED ") != 0 { // the layers above the first one are others
			n.Errorf("changed:\n%s", out)
		}
		s.see(t, "cat /main/a", "3\n")
		n.mkdir("new")
		for _, args := range [][]string{{"init", "-q", "--object-format=sha256", "-b", "main"}, {"-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"}} {
			n.once(append([]string{git, "-C", n.dir + "/new"}, args...)...)
		}
		n.once(git, "clone", "-q", "--bare", n.dir+"/new", n.dir+"/new.git")
		s.build("FROM local/bb\nADD --keep-git-dir http://git.test/new.git /new\nRUN test $(wc -c < /new/.git/HEAD) = 65\n", allow...)
		whole := "FROM local/bb\nADD " + url + "#" + first + " /x\n"
		s.build(whole, allow...)
		if out := s.build(whole, "--egress", "none"); !strings.Contains(out, " CACHED ") {
			n.Errorf("a whole commit was asked for again:\n%s", out)
		}

		run("rm", "-q", "-r", "sub")
		n.once("/bin/ln", "-s", "/etc", work+"/sub")
		run("add", "-A")
		run("commit", "-q", "-m", "link")
		publish()
		other := strings.Repeat("0", len(first)-1) + "1" // a commit that the repository does not have
		for source, parts := range map[string][]string{
			url + "#main:sub":              {"not a directory of the repository"},
			url + "#nosuch":                {`no branch or tag "nosuch"`},
			"http://git.test/nosuch.git":   {"git: "},
			"http://dark.test/repo.git":    {"egress forbids dark.test:80"},
			"--checksum=0123456789 " + url: {"is commit", "not 0123456789"},
			"git@git.test:repo.git":        {"not supported over ssh"},
			url + "#" + other + ":sub":     {"git: "},
		} {
			s.refused(t, "FROM local/bb\nADD "+source+" /x\n", append(parts, "Containerfile:2: ADD "), allow...)
		}
		if left := s.ok("ls", "-q"); left != "" {
			n.Errorf("sandboxes are left: %q", left)
		}
	})
}

// TestBuildAddSubmodules checks the submodules of a repository: nested ones, older commits and relative URLs come with it,
// and none leads to a name that the build may not reach, to files of the sandbox or to a program.
func TestBuildAddSubmodules(t *testing.T) {
	onBuildInternet(t, func(n *internet, s *site, f *fileServer) {
		git := program(n, "git")
		need(n, exists("/usr/lib/git-core/git-http-backend"), "git-http-backend")
		run := func(repo string, args ...string) string {
			cmd := exec.Command(git, append([]string{"-C", n.dir + "/" + repo, "-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"}, args...)...)
			cmd.Env = append(cmd.Environ(), "HOME="+n.home)
			out, err := cmd.CombinedOutput()
			if err != nil {
				n.Fatalf("git %q: %v: %s", args, err, out)
			}
			return strings.TrimSpace(string(out))
		}
		commit := func(repo string) string {
			run(repo, "add", "-A")
			run(repo, "commit", "-q", "-m", "x")
			n.once("/bin/rm", "-rf", n.dir+"/"+repo+".git")
			n.once(git, "clone", "-q", "--bare", n.dir+"/"+repo, n.dir+"/"+repo+".git")
			return run(repo, "rev-parse", "HEAD")
		}
		start := func(repo string) {
			n.mkdir(repo)
			run(repo, "init", "-q", "-b", "main")
			n.file(repo+"/"+repo+".txt", repo+"\n", 0o644)
		}
		// link makes a commit in which the directory name is another repository's commit.
		link := func(repo, name, url, id string) {
			n.file(repo+"/.gitmodules", fmt.Sprintf("[submodule %q]\n\tpath = %s\n\turl = %s\n", name, name, url), 0o644)
			n.mkdir(repo + "/" + name)
			run(repo, "update-index", "--add", "--cacheinfo", "160000,"+id+","+name)
			run(repo, "add", ".gitmodules")
			run(repo, "commit", "-q", "-m", "link")
			n.once("/bin/rm", "-rf", n.dir+"/"+repo+".git")
			n.once(git, "clone", "-q", "--bare", n.dir+"/"+repo, n.dir+"/"+repo+".git")
		}
		start("leaf")
		older := commit("leaf")
		n.file("leaf/leaf.txt", "newer\n", 0o644)
		commit("leaf")
		start("lib")
		commit("lib")
		link("lib", "leaf", "../leaf.git", older)
		start("app")
		commit("app")
		link("app", "lib", "http://git.test/lib.git", run("lib", "rev-parse", "HEAD"))
		allow := []string{"-t", "local/app", "--egress", "none", "--allow-domain", "git.test"}
		s.put(".containerignore", "*\n") // it is for the context
		s.build("FROM local/bb\nADD http://git.test/app.git /a\nADD --keep-git-dir http://git.test/app.git /kept\n", allow...)
		s.see(t, "cat /a/app.txt /a/lib/lib.txt /a/lib/leaf/leaf.txt /kept/lib/leaf/leaf.txt; find /a -name .git; ls -d /kept/.git", "app\nlib\nleaf\nleaf\n/kept/.git\n")
		for i, url := range []string{"http://dark.test/x.git", "file:///etc", "/etc", "-u./payload", "ext::sh -c id", "ssh://git.test/x.git"} {
			repo := fmt.Sprintf("bad%d", i)
			start(repo)
			commit(repo)
			link(repo, "lib", url, older)
			parts := []string{"Containerfile:2: ADD http://git.test/" + repo + ".git: "}
			if i == 0 {
				parts = append(parts, "egress forbids dark.test:80")
			}
			s.refused(t, "FROM local/bb\nADD http://git.test/"+repo+".git /a\n", parts, allow...)
		}
		if left := s.ok("ls", "-q"); left != "" {
			n.Errorf("sandboxes are left: %q", left)
		}
	})
}
