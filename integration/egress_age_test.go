package integration

import (
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// ages are the versions of the package left, and the age of each.
var ages = map[string]time.Duration{"1.0.0": 400 * 24 * time.Hour, "2.0.0": time.Hour}

// agedRegistries serves the package left as the registries of npm, Python and Go do.
func (n *internet) agedRegistries() (npm string) {
	n.Helper()
	npm = n.packageServers("npm")[0]
	index, files := n.packageServers("PyPI")[0], n.packageServers("PyPI files")[0]
	modules, sums := n.goServers()
	cert := n.trusted("8.3.3.3 " + strings.Join([]string{npm, index, files, modules, sums}, " ") + "\n")
	answers := map[string]string{}
	published := func(v string) string { return time.Now().Add(-ages[v]).UTC().Format(time.RFC3339) }
	var versions, times, wheels, list []string
	for v := range ages {
		tarball := string(npmPackage("left", `{"name":"left","version":"`+v+`"}`))
		sum := sha512.Sum512([]byte(tarball))
		answers[npm+"/left/-/left-"+v+".tgz"] = tarball
		versions = append(versions, fmt.Sprintf(`"%s":{"name":"left","version":"%s","dist":{"tarball":"https://%s/left/-/left-%s.tgz","integrity":"sha512-%s"}}`, v, v, npm, v, base64.StdEncoding.EncodeToString(sum[:])))
		times = append(times, fmt.Sprintf("%q:%q", v, published(v)))

		wheel := string(zipped(map[string]string{"left.py": "version = '" + v + "'\n", "left-" + v + ".dist-info/METADATA": "Metadata-Version: 2.1\nName: left\nVersion: " + v + "\n",
			"left-" + v + ".dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n", "left-" + v + ".dist-info/RECORD": ""}))
		file := "left-" + v + "-py3-none-any.whl"
		answers[files+"/packages/"+file] = wheel
		wheels = append(wheels, fmt.Sprintf(`{"filename":"%s","url":"https://%s/packages/%s","hashes":{"sha256":"%x"},"upload-time":"%s"}`, file, files, file, sha256.Sum256([]byte(wheel)), published(v)))

		goV := map[string]string{"1.0.0": "v1.0.0", "2.0.0": "v1.9.0"}[v]
		at := modules + "/go.test/left/@v/" + goV
		info := fmt.Sprintf(`{"Version":%q,"Time":%q}`, goV, published(v))
		answers[at+".info"], answers[at+".mod"] = info, "module go.test/left\n"
		answers[at+".zip"] = string(zipped(map[string]string{"go.test/left@" + goV + "/go.mod": "module go.test/left\n", "go.test/left@" + goV + "/left.go": "package left\n"}))
		list = append(list, goV)
	}
	answers[npm+"/left"] = fmt.Sprintf(`{"name":"left","dist-tags":{"latest":"2.0.0"},"time":{%s},"versions":{%s}}`, strings.Join(times, ","), strings.Join(versions, ","))
	answers[index+"/simple/left/"] = fmt.Sprintf(`{"meta":{"api-version":"1.0"},"name":"left","files":[%s]}`, strings.Join(wheels, ","))
	answers[modules+"/go.test/left/@v/list"] = strings.Join(list, "\n") + "\n"
	answers[modules+"/go.test/left/@latest"] = answers[modules+"/go.test/left/@v/v1.9.0.info"]
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := answers[r.Host+r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		n.saw(r.Host + r.URL.Path)
		if r.Host == index {
			w.Header().Set("Content-Type", "application/vnd.pypi.simple.v1+json")
		}
		w.Write([]byte(text))
	})}
	n.Cleanup(func() { server.Close() })
	go server.Serve(tls.NewListener(n.listen("8.3.3.3:443"), &tls.Config{Certificates: []tls.Certificate{cert}}))
	return npm
}

// TestPackageAge checks with the real npm, pip, uv and go that they choose the old version, and that a pinned young one
// fails with its age and the flag. A caller cannot lower the operator's age. Tools that are not installed are left out.
func TestPackageAge(t *testing.T) {
	onInternet(t, func(n *internet) {
		npm := n.agedRegistries()
		pip := "pip3 install -q --root-user-action=ignore --disable-pip-version-check --no-cache-dir --target . "
		for _, c := range []struct{ tool, script, old, young, pinned, says string }{
			{"npm", `npm install --silent --fetch-retries=0 --no-audit --no-fund --prefix . left && grep -o '"version":"[^"]*"' node_modules/left/package.json`, `"version":"1.0.0"`, `"version":"2.0.0"`,
				`echo '{"name":"x","version":"1.0.0","dependencies":{"left":"2.0.0"}}' > package.json
echo '{"name":"x","version":"1.0.0","lockfileVersion":3,"packages":{"":{"name":"x","version":"1.0.0","dependencies":{"left":"2.0.0"}},"node_modules/left":{"version":"2.0.0","resolved":"https://` + npm + `/left/-/left-2.0.0.tgz"}}}' > package-lock.json
npm ci --fetch-retries=0 --no-audit --no-fund`, "403"},
			{"pip3", pip + "left 2>&1 && python3 -c 'import left; print(left.version)'", "1.0.0", "2.0.0", pip + "left==2.0.0", "No matching distribution"},
			{"uv", "uv pip install -q --no-cache --system-certs --target . left 2>&1 && python3 -c 'import left; print(left.version)'", "1.0.0", "2.0.0", "uv pip install --no-cache --system-certs --target . left==2.0.0", "left==2.0.0"},
			{"go", `export GONOSUMDB=* GOFLAGS=-modcacherw; mkdir m; cd m; ` + goTool() + ` mod init x 2>/dev/null; ` + goTool() + ` get go.test/left@latest 2>/dev/null; grep -o 'left v.*' go.mod | cut -d' ' -f1-2`, "left v1.0.0", "left v1.9.0",
				`export GONOSUMDB=* GOFLAGS=-modcacherw; ` + goTool() + ` mod download go.test/left@v1.9.0`, `it is 1h\dm0s old, and --package-age wants 7d; --package-age-except go.test/left allows it`},
		} {
			if _, err := exec.LookPath(c.tool); err != nil {
				continue
			}
			run := func(script string, flags ...string) result {
				return n.demesne(append(append([]string{"run", "--egress", "package-managers", "--memory", "1g"}, flags...), "--", "sh", "-c", "cd /tmp && "+script)...)
			}
			if r := run(c.script, "--package-age", "7d"); r.stdout != c.old+"\n" {
				n.Errorf("%s, old: %+v", c.tool, r)
			}
			if r := run(c.script, "--package-age", "7d", "--package-age-except", "left", "--package-age-except", "go.test/left"); r.stdout != c.young+"\n" {
				n.Errorf("%s, excepted: %+v", c.tool, r)
			}
			if r := run(c.pinned, "--package-age", "7d"); r.code == 0 || !regexp.MustCompile(c.says).MatchString(r.stdout+r.stderr) {
				n.Errorf("%s, pinned: %+v", c.tool, r)
			}
		}
		get := `curl -sS https://` + npm + `/left/-/left-2.0.0.tgz | head -c 300`
		for _, c := range []struct {
			env, want string
			flags     []string
		}{
			{"DEMESNE_PACKAGE_AGE=7d", "--package-age wants 7d", nil},
			{"DEMESNE_PACKAGE_AGE=7d", "--package-age wants 7d", []string{"--package-age", "1m", "--package-age-except", "left"}},
			{"DEMESNE_PACKAGE_AGE=7d", "--package-age wants 30d", []string{"--package-age", "30d", "--package-age-except", "left"}},
			{"DEMESNE_PACKAGE_AGE=week", `DEMESNE_PACKAGE_AGE "week"`, nil},
		} {
			before := n.extra
			n.extra = append(n.extra[:len(n.extra):len(n.extra)], c.env)
			r := n.demesne(append(append([]string{"run", "--egress", "package-managers"}, c.flags...), "--", "sh", "-c", get)...)
			if n.extra = before; !strings.Contains(r.stdout+r.stderr, c.want) {
				n.Errorf("%s %q: %+v", c.env, c.flags, r)
			}
		}
		if p, _ := n.report([]string{"--egress", "package-managers", "--package-age", "7d"}, "true"); !strings.Contains(p.Receipt.Network, "packages of at least 7d") {
			n.Errorf("receipt: %q", p.Receipt.Network)
		}
	})
}
