package integration

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// bundle is the path of the host's trusted certificates.
const bundle = "/etc/ssl/certs/ca-certificates.crt"

// trusted makes the machine trust the test's servers and resolve their names.
func (n *internet) trusted(hosts string) tls.Certificate {
	n.Helper()
	need(n, exists(bundle), bundle)
	var names []string
	for line := range strings.Lines(hosts) {
		names = append(names, strings.Fields(line)[1:]...)
	}
	cert := n.certificate(names...)
	for at, file := range map[string]string{bundle: n.ca, "/etc/hosts": n.file("hosts", hosts, 0o644)} {
		if err := unix.Mount(file, at, "", unix.MS_BIND, ""); err != nil {
			n.Fatal(err)
		}
		n.Cleanup(func() { unix.Unmount(at, unix.MNT_DETACH) })
	}
	return cert
}

// registry returns the handler of the git, npm, Python and Go servers. Each serves one package, left, to clients
// with the token.
func (n *internet) registry() http.Handler {
	mux := http.NewServeMux()
	tarball := npmPackage("left", `{"name":"left","version":"1.0.0"}`)
	sum := sha512.Sum512(tarball)
	mux.HandleFunc("npm.test/left", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"name":"left","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"left","version":"1.0.0","dist":{"tarball":"https://npm.test/left.tgz","integrity":"sha512-%s"}}}}`,
			base64.StdEncoding.EncodeToString(sum[:]))
	})
	mux.HandleFunc("npm.test/left.tgz", func(w http.ResponseWriter, r *http.Request) { w.Write(tarball) })
	mux.HandleFunc("py.test/simple/left/", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `<a href="/left-1.0.0-py3-none-any.whl">left-1.0.0-py3-none-any.whl</a>`)
	})
	mux.HandleFunc("py.test/", func(w http.ResponseWriter, r *http.Request) {
		w.Write(zipped(map[string]string{
			"left.py": "side = 'left'\n", "left-1.0.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: left\nVersion: 1.0.0\n",
			"left-1.0.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n", "left-1.0.0.dist-info/RECORD": "",
		}))
	})
	mod := "module go.test/left\n"
	mux.HandleFunc("go.test/go.test/left/@v/v1.0.0.info", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, `{"Version":"v1.0.0"}`) })
	mux.HandleFunc("go.test/go.test/left/@v/v1.0.0.mod", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, mod) })
	mux.HandleFunc("go.test/go.test/left/@v/v1.0.0.zip", func(w http.ResponseWriter, r *http.Request) {
		w.Write(zipped(map[string]string{"go.test/left@v1.0.0/go.mod": mod, "go.test/left@v1.0.0/left.go": "package left\n"}))
	})
	mux.Handle("git.test/", &cgi.Handler{Path: "/usr/lib/git-core/git-http-backend", Env: []string{
		"GIT_PROJECT_ROOT=" + n.dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		if r.Header.Get("Authorization") != "Bearer "+canary && password != canary {
			w.Header().Set("WWW-Authenticate", "Basic")
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		n.saw(r.Host + r.URL.Path)
		mux.ServeHTTP(w, r)
	})
}

func npmPackage(name, manifest string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	t := tar.NewWriter(z)
	t.WriteHeader(&tar.Header{Name: "package/package.json", Mode: 0o644, Size: int64(len(manifest))})
	io.WriteString(t, manifest)
	t.Close()
	z.Close()
	return b.Bytes()
}

func zipped(files map[string]string) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range files {
		w, _ := z.Create(name) // writes to memory, which cannot fail
		io.WriteString(w, text)
	}
	z.Close()
	return b.Bytes()
}

// TestEgressSecretTools runs the README's examples: git, npm, pip and go fetch over TLS with a token that the
// sandbox never sees. Tools that are not installed are left out.
func TestEgressSecretTools(t *testing.T) {
	onInternet(t, func(n *internet) {
		program(n, "git")
		need(n, exists("/usr/lib/git-core/git-http-backend"), "git-http-backend")
		cert := n.trusted("8.3.3.3 git.test npm.test py.test go.test\n")
		n.repository("repo.git", "first")
		server := &http.Server{Handler: n.registry()}
		n.Cleanup(func() { server.Close() })
		go server.Serve(tls.NewListener(n.listen("8.3.3.3:443"), &tls.Config{Certificates: []tls.Certificate{cert}}))
		for _, c := range []struct{ tool, host, script, want string }{
			{"git", "git.test", `git clone -q https://x-access-token:$TOKEN@git.test/repo.git && git -C repo log --format=%s`, "first\n"},
			{"git", "git.test", `git -c http.extraHeader="Authorization: Bearer $TOKEN" clone -q https://git.test/repo.git && git -C repo log --format=%s`, "first\n"},
			{"npm", "npm.test", `printf 'registry=https://npm.test/\n//npm.test/:_authToken=${TOKEN}\n' > ~/.npmrc
npm install --silent --fetch-retries=0 --no-audit --no-fund --prefix . left && ls node_modules`, "left\n"},
			{"pip3", "py.test", `pip3 --version > /dev/null && PIP_INDEX_URL=https://__token__:$TOKEN@py.test/simple pip3 install -q --root-user-action=ignore --disable-pip-version-check --target . left 2>&1 && python3 -c 'import left; print(left.side)'`, "left\n"},
			{"java", "npm.test", `cat > F.java <<'E'
public class F { public static void main(String[] a) throws Exception {
  java.net.URLConnection c = new java.net.URL("https://npm.test/left").openConnection();
  c.setRequestProperty("Authorization", "Bearer " + System.getenv("TOKEN"));
  System.out.println(new String(c.getInputStream().readNBytes(14)));
} }
E
java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC F.java`, "{\"name\":\"left\"\n"},
			{"go", "go.test", `export GOPROXY=https://me:$TOKEN@go.test GONOSUMDB=* GOFLAGS=-modcacherw && mkdir m && cd m && ` + goTool() + ` mod init -C . x 2>/dev/null; ` + goTool() + ` mod download go.test/left@v1.0.0 && ls ~/go/pkg/mod/go.test`, "left@v1.0.0\n"},
		} {
			if _, err := exec.LookPath(c.tool); err != nil {
				continue
			}
			n.extra = append(n.extra, "TOKEN="+canary)
			r := n.demesne("run", "--allow-domain", c.host, "--secret", "TOKEN", "--secret-for", "TOKEN="+c.host+":Authorization", "--memory", "1g", "--", "sh", "-c", "cd /tmp && "+c.script)
			if r.stdout != c.want || !n.heard(c.host) || strings.Contains(r.stdout+r.stderr, canary) {
				n.Errorf("%s: %+v", c.script, r)
			}
			if r := n.demesne("run", "--allow-domain", c.host, "--env", "TOKEN=none", "--memory", "1g", "--", "sh", "-c", "cd /tmp && "+c.script+" < /dev/null"); r.code == 0 {
				n.Errorf("without a token, %s: %+v", c.script, r)
			}
		}
	})
}

// goTool returns the path of go, which a sandbox does not have in its PATH.
func goTool() string {
	path, _ := exec.LookPath("go")
	if _, err := os.Stat(path); err != nil {
		return "go"
	}
	return path
}
