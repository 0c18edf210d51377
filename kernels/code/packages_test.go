package code_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"demesne/internal/need"
	"demesne/kernels/code"
	"demesne/kernels/languages"
	"demesne/session"
	"demesne/session/events"
)

// registry serves the package left in two versions, as PyPI and npm do. It returns its port.
func registry(t testing.TB) (port string) {
	t.Helper()
	m := http.NewServeMux()
	m.HandleFunc("/simple/left/", func(w http.ResponseWriter, r *http.Request) {
		for _, v := range []string{"1.0.0", "2.0.0"} {
			fmt.Fprintf(w, "<a href=\"/wheel/left-%s-py3-none-any.whl\">left-%[1]s-py3-none-any.whl</a>", v)
		}
	})
	m.HandleFunc("/wheel/{file}", func(w http.ResponseWriter, r *http.Request) {
		version, _, _ := strings.Cut(strings.TrimPrefix(r.PathValue("file"), "left-"), "-")
		w.Write(wheel(t, version))
	})
	m.HandleFunc("/left", func(w http.ResponseWriter, r *http.Request) {
		var versions []string
		for _, v := range []string{"1.0.0", "2.0.0"} {
			sum := sha512.Sum512(tarball(t, v))
			versions = append(versions, fmt.Sprintf(`%q:{"name":"left","version":%[1]q,"dist":{"tarball":"http://localhost.:%s/npm/left-%[1]s.tgz","integrity":"sha512-%[3]s"}}`,
				v, port, base64.StdEncoding.EncodeToString(sum[:])))
		}
		fmt.Fprintf(w, `{"name":"left","dist-tags":{"latest":"2.0.0"},"versions":{%s}}`, strings.Join(versions, ","))
	})
	m.HandleFunc("/npm/{file}", func(w http.ResponseWriter, r *http.Request) {
		w.Write(tarball(t, strings.TrimSuffix(strings.TrimPrefix(r.PathValue("file"), "left-"), ".tgz")))
	})
	s := httptest.NewServer(m)
	t.Cleanup(s.Close)
	port = s.URL[strings.LastIndex(s.URL, ":")+1:]
	return port
}

func wheel(t testing.TB, version string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	info := "left-" + version + ".dist-info/"
	for name, text := range map[string]string{
		"left.py": "side = 'left " + version + "'\n", info + "METADATA": "Metadata-Version: 2.1\nName: left\nVersion: " + version + "\n",
		info + "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n", info + "RECORD": "",
	} {
		w, err := z.Create(name)
		if err == nil {
			_, err = io.WriteString(w, text)
		}
		if err != nil {
			t.Error(err)
		}
	}
	z.Close()
	return b.Bytes()
}

func tarball(t testing.TB, version string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, f := range []struct{ name, text string }{
		{"package/package.json", `{"name":"left","version":"` + version + `","main":"main.js"}`},
		{"package/main.js", "module.exports = 'left " + version + "'"},
	} {
		err := w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.text))})
		if err == nil {
			_, err = io.WriteString(w, f.text)
		}
		if err != nil {
			t.Error(err)
		}
	}
	w.Close()
	z.Close()
	return b.Bytes()
}

// reaching returns options whose sandbox reaches the registry of the test and nothing else.
func reaching(t testing.TB, language, port string) code.Options {
	t.Helper()
	o := options(t, language)
	o.Create.Egress = session.Egress{Allow: []string{"localhost:" + port, "127.0.0.1:" + port}}
	o.Create.Spec.Defaults.Env = []string{
		"PIP_INDEX_URL=http://localhost.:" + port + "/simple", "PIP_TRUSTED_HOST=localhost.", "PIP_RETRIES=0",
		"npm_config_registry=http://localhost.:" + port + "/", "npm_config_fetch_retries=0",
	}
	return o
}

// installs skips the test on a machine whose interpreter has no installer: a python3 that comes first on the path may lack pip.
func installs(t testing.TB, language string) {
	t.Helper()
	argv := map[string][]string{"python": {"python3", "-m", "pip"}, "node": {"npm"}}[language]
	found := exec.Command("env", append(append([]string{"PATH=/usr/local/bin:/usr/bin:/bin"}, argv...), "--version")...).Run() // as in a sandbox
	need.That(t, found == nil, strings.Join(argv, " "))
}

// TestDependencies installs packages when a session begins and later, on the host's files.
func TestDependencies(t *testing.T) {
	for _, c := range []struct{ language, use, old string }{
		{"python", "import left; left.side", "'left 1.0.0'"},
		{"node", "import side from 'left'; require('left') === side ? side : 'two'", "'left 1.0.0'"},
	} {
		t.Run(c.language, func(t *testing.T) {
			d := newDesk(t)
			installed := make(chan events.Event, 2)
			d.Service.Close()
			d.Service = session.New(session.Options{Observe: func(_ context.Context, e events.Event) {
				if e.Type == events.PackageInstalled {
					installed <- e
				}
			}})
			installs(t, c.language)
			o := reaching(t, c.language, registry(t))
			o.Dependencies = []languages.Dependency{{Name: "left", Version: "1.0.0"}}
			s := d.start(o)
			if s.Installed == nil || !s.Installed.OK {
				t.Fatalf("%+v", s.Installed)
			}
			if e := <-installed; e.Detail["package"] != "left==1.0.0" || e.Detail["language"] != c.language || e.Sandbox != s.Sandbox.ID {
				t.Errorf("%+v", e)
			}
			if got := said(t, s, c.use); got != c.old {
				t.Errorf("%s", got)
			}

			later := d.start(reaching(t, c.language, registry(t)))
			said(t, later, "1")
			i, err := later.Install(t.Context(), []languages.Dependency{{Name: "left"}})
			if err != nil || !i.OK {
				t.Fatalf("%+v, %v", i, err)
			}
			if got := said(t, later, c.use); got != strings.ReplaceAll(c.old, "1", "2") {
				t.Errorf("without a new start of the kernel: %s", got)
			}
			if err := later.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := said(t, later, c.use); got != strings.ReplaceAll(c.old, "1", "2") {
				t.Errorf("after a new start of the kernel: %s", got)
			}
		})
	}
}

// TestDependenciesFail checks that a failure is reported, is not fatal, and names the egress that would help.
func TestDependenciesFail(t *testing.T) {
	d := newDesk(t)
	installs(t, "python")
	o := options(t, "python")
	o.Create.Spec.Defaults.Env = []string{"PIP_RETRIES=0"}
	o.Dependencies = []languages.Dependency{{Name: "left"}}
	s := d.start(o)
	if i := s.Installed; i == nil || i.OK || i.Stderr == "" || !strings.Contains(i.Hint, "the sandbox has no network: egress package-managers") {
		t.Errorf("without a network: %+v", i)
	}
	if got := said(t, s, "1 + 1"); got != "2" {
		t.Errorf("%s", got)
	}

	o = reaching(t, "python", registry(t))
	o.Dependencies = []languages.Dependency{{Name: "right"}}
	s = d.start(o)
	if i := s.Installed; i == nil || i.OK || !strings.Contains(i.Stderr, "No matching distribution found for right") || i.Hint != "" {
		t.Errorf("a package that does not exist: %+v", i)
	}

	o.Create.Spec.Defaults.Env = []string{"PIP_INDEX_URL=https://elsewhere.test/simple", "PIP_RETRIES=0"}
	s = d.start(o)
	if i := s.Installed; i == nil || i.OK || !strings.Contains(i.Hint, "egress denied elsewhere.test") || !strings.Contains(i.Hint, "package-managers") {
		t.Errorf("an index that is not allowed: %+v", i)
	}

	o.Dependencies = []languages.Dependency{{Name: "--index-url=http://x.test"}}
	if _, err := code.Start(t.Context(), d.Service, o, session.Callbacks{}); err == nil || !strings.Contains(err.Error(), "not a name of a package") {
		t.Errorf("a name that is an option: %v", err)
	}
}
