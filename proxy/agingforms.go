package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"demesne/proxy/age"
	"demesne/proxy/policy"
)

// npm serves /NAME and /@SCOPE/NAME, and files at NAME/-/FILE.tgz.
func (x *aged) npm(path string) bool {
	if strings.HasPrefix(path, "/-/") {
		return false
	}
	before, file, isFile := strings.Cut(path, "/-/")
	name := npmName(before)
	if name == "" {
		return x.refuse("not the address of a package")
	}
	if x.pkg = name; x.excepted(name) {
		return false
	}
	if !isFile {
		x.r.Header.Set("Accept", "application/json") // the short form has no times
		return x.metadata(path, "application/json", func(body []byte) ([]byte, error) {
			out, times, err := age.NPM(body, x.bound())
			x.learn(x.key(""), times)
			return out, err
		})
	}
	base := name[strings.LastIndexByte(name, '/')+1:]
	version, ok := strings.CutPrefix(strings.TrimSuffix(file, ".tgz"), base+"-")
	if !ok {
		return x.refuse("not the file of a version")
	}
	return x.file(version, func() error {
		return x.look(x.flow, before, "application/json", func(body []byte) error {
			_, times, err := age.NPM(body, x.bound())
			x.learn(x.key(""), times)
			return err
		})
	})
}

// npmName returns the package of the path of a packument, which a mirror's directory may precede.
func npmName(path string) string {
	plain, err := url.PathUnescape(path)
	if err != nil {
		return ""
	}
	parts := strings.Split(strings.Trim(plain, "/"), "/")
	last := len(parts) - 1
	if last > 0 && strings.HasPrefix(parts[last-1], "@") {
		return parts[last-1] + "/" + parts[last]
	}
	return parts[last]
}

// pypi serves pages at simple/NAME/, and files.
func (x *aged) pypi(path string, kind policy.Registry) bool {
	_, name, isPage := strings.Cut(path, "/simple/")
	name = strings.TrimSuffix(name, "/")
	switch {
	case isPage && name == "" || path == "/simple":
		return false // the list of all projects
	case isPage && strings.Contains(name, "/"):
		return x.refuse("not the page of a project")
	case isPage:
		if x.pkg = name; x.excepted(name) {
			return false
		}
		return x.page(path)
	case strings.HasPrefix(path, "/pypi/"):
		return x.refuse("only the simple API has the times of files")
	}
	file := path[strings.LastIndexByte(path, '/')+1:]
	x.pkg = projectOf(file)
	if x.pkg == "" {
		return x.refuse("not a file of a project")
	}
	if x.excepted(x.pkg) {
		return false
	}
	at := *x.flow.url()
	at.Host = x.flow.q.Host()
	key := strings.TrimSuffix(at.String()+path, ".metadata")
	return x.fileAt(key, func() error {
		if kind != policy.PyPIFiles {
			return errors.New("the page of its project was not read before")
		}
		name, err := policy.ParseName(policy.PyPIIndex)
		if err != nil {
			return err
		}
		fl := x.f.p.ask("http", policy.Query{Name: name, Port: 443, Method: http.MethodGet, Path: "/simple/" + samePackage(x.pkg) + "/"})
		defer fl.end()
		if !fl.d.Allowed {
			return errors.New(fl.d.Reason)
		}
		fl.encrypted = true
		return x.look(fl, fl.q.Path, age.JSONType, func(body []byte) error {
			_, _, times, err := age.PyPI(body, &url.URL{Scheme: "https", Host: fl.q.Host(), Path: fl.q.Path}, x.bound())
			x.learn("", times)
			return err
		})
	})
}

// page serves the page of a project, in the form that the client wants.
func (x *aged) page(path string) bool {
	inJSON := strings.Contains(x.r.Header.Get("Accept"), age.JSONType)
	kind := "text/html; charset=utf-8"
	if inJSON {
		kind = age.JSONType
	}
	x.r.Header.Set("Accept", age.JSONType)
	at := *x.flow.url()
	at.Host, at.Path = x.flow.q.Host(), path
	return x.metadata(path, kind, func(body []byte) ([]byte, error) {
		out, page, times, err := age.PyPI(body, &at, x.bound())
		x.learn("", times)
		if !inJSON {
			out = page
		}
		return out, err
	})
}

// projectOf returns the project of a file's name: NAME-VERSION-….whl, or NAME-VERSION.tar.gz.
func projectOf(file string) string {
	file = strings.TrimSuffix(file, ".metadata")
	if wheel, ok := strings.CutSuffix(file, ".whl"); ok {
		name, _, _ := strings.Cut(wheel, "-")
		return name
	}
	for _, end := range []string{".tar.gz", ".zip", ".tar.bz2", ".tgz", ".egg"} {
		if name, ok := strings.CutSuffix(file, end); ok {
			if i := strings.LastIndexByte(name, '-'); i > 0 {
				return name[:i]
			}
		}
	}
	return ""
}

// golang serves a module proxy.
func (x *aged) golang(path string) bool {
	if strings.HasPrefix(path, "/sumdb/") {
		return false
	}
	module, file, ok := strings.Cut(path, "/@v/")
	if latest, found := strings.CutSuffix(path, "/@latest"); found {
		module, file, ok = latest, "", true
	}
	if !ok {
		return x.refuse("not the address of a module")
	}
	if x.pkg = moduleName(module); x.excepted(x.pkg) {
		return false
	}
	switch {
	case file == "":
		return x.latest(module)
	case file == "list":
		return x.metadata(path, "text/plain; charset=utf-8", func(body []byte) ([]byte, error) { return x.oldOf(module, body) })
	case strings.HasSuffix(file, ".info"):
		return x.metadata(path, "application/json", func(body []byte) ([]byte, error) {
			version, at, err := age.GoInfo(body)
			if err == nil && x.bound().Young(at) {
				err = &youngError{version, at}
			}
			return body, err
		})
	}
	version := strings.TrimSuffix(strings.TrimSuffix(file, ".mod"), ".zip")
	return x.file(version, func() error { return x.lookModule(module, version) })
}

// moduleName undoes the escapes of a module proxy: !a is A.
func moduleName(path string) string {
	var b strings.Builder
	up := false
	for _, c := range strings.TrimPrefix(path, "/") {
		if c == '!' {
			up = true
			continue
		}
		if up {
			c, up = c-'a'+'A', false
		}
		b.WriteRune(c)
	}
	return b.String()
}

// lookModule learns the time of one version.
func (x *aged) lookModule(module, version string) error {
	return x.look(x.flow, module+"/@v/"+version+".info", "application/json", func(body []byte) error {
		_, at, err := age.GoInfo(body)
		if err == nil {
			x.learn(x.key(""), age.Times{version: at})
		}
		return err
	})
}

// judged is how many versions of a module are judged, the highest first. Lower ones stay in the list, and are judged when
// their files are asked for.
const judged = 16

// oldOf returns a list of versions without the young ones among the highest.
func (x *aged) oldOf(module string, body []byte) ([]byte, error) {
	all, err := age.GoList(body)
	if err != nil {
		return nil, err
	}
	young := map[int]bool{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i, v := range all[:min(len(all), judged)] {
		wg.Go(func() {
			at, known := x.time(x.key(v))
			if !known && x.lookModule(module, v) == nil {
				at, _ = x.time(x.key(v))
			}
			if x.bound().Young(at) {
				mu.Lock()
				young[i] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	var out bytes.Buffer
	for i, v := range all {
		if !young[i] {
			fmt.Fprintln(&out, v)
		}
	}
	return out.Bytes(), nil
}

// latest answers with the latest version that is old enough.
func (x *aged) latest(module string) bool {
	return x.metadata(module+"/@latest", "application/json", func(body []byte) ([]byte, error) {
		version, at, err := age.GoInfo(body)
		if err != nil || !x.bound().Young(at) {
			return body, err
		}
		var best string
		err = x.look(x.flow, module+"/@v/list", "text/plain", func(body []byte) error {
			old, err := x.oldOf(module, body)
			best, _, _ = strings.Cut(string(old), "\n")
			return err
		})
		if err != nil {
			return nil, err
		}
		if best == "" {
			return nil, &youngError{version, at}
		}
		err = x.look(x.flow, module+"/@v/"+best+".info", "application/json", func(b []byte) error { body = b; return nil })
		if err == nil {
			if version, at, err = age.GoInfo(body); err == nil && x.bound().Young(at) {
				err = &youngError{version, at}
			}
		}
		return body, err
	})
}

// crates serves the sparse index and files.
func (x *aged) crates(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	last := len(parts) - 1
	if parts[last] == "config.json" {
		return false
	}
	if version, ok := strings.CutSuffix(parts[last], ".crate"); ok && last > 0 {
		version, ok = strings.CutPrefix(version, parts[last-1]+"-")
		x.pkg = strings.ToLower(parts[last-1])
		return x.crate(version, ok)
	}
	if parts[last] == "download" && last > 1 {
		x.pkg = strings.ToLower(parts[last-2])
		return x.crate(parts[last-1], true)
	}
	x.pkg = strings.ToLower(parts[last])
	if !strings.HasSuffix(path, "/"+indexPath(x.pkg)) {
		return x.refuse("not the address of a crate")
	}
	if x.excepted(x.pkg) {
		return false
	}
	return x.metadata(path, "text/plain", func(body []byte) ([]byte, error) {
		out, times, err := age.Crates(body, x.bound())
		x.learn(x.key(""), times)
		return out, err
	})
}

// crate serves the file of a version. The index that has its time may be on another host.
func (x *aged) crate(version string, ok bool) bool {
	if !ok {
		return x.refuse("not the file of a version")
	}
	if x.excepted(x.pkg) {
		return false
	}
	return x.file(version, func() error {
		name, err := policy.ParseName(policy.CratesIndex)
		if err != nil {
			return err
		}
		fl := x.f.p.ask("http", policy.Query{Name: name, Port: 443, Method: http.MethodGet, Path: "/" + indexPath(x.pkg)})
		defer fl.end()
		if !fl.d.Allowed {
			return errors.New(fl.d.Reason)
		}
		fl.encrypted = true
		return x.look(fl, fl.q.Path, "text/plain", func(body []byte) error {
			_, times, err := age.Crates(body, x.bound())
			x.learn(x.key(""), times)
			return err
		})
	})
}

// indexPath returns the path of a crate in an index.
func indexPath(name string) string {
	low := strings.ToLower(name)
	switch len(low) {
	case 0:
		return ""
	case 1, 2:
		return fmt.Sprintf("%d/%s", len(low), low)
	case 3:
		return "3/" + low[:1] + "/" + low
	}
	return low[:2] + "/" + low[2:4] + "/" + low
}
