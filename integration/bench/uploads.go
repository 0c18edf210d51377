package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	uploadMiB    = 1024
	uploadRounds = 3
)

// uploader sends one large file to a sandbox of demesne serve.
type uploader struct {
	*machine
	url, key, file string
	rest, e2b      string // ids of a sandbox of each protocol
	token          string // of the sandbox of E2B's protocol
}

// uploads times the ways to copy a file of 1 GiB into a sandbox beside cp on the same file system. All take turns.
func uploads(m *machine) error {
	url, stop, err := m.serveAPI()
	if err != nil {
		return err
	}
	defer stop()
	u := &uploader{machine: m, url: url, file: filepath.Join(m.dir, "h", "large")}
	if err := u.prepare(); err != nil {
		return err
	}
	defer m.output("demesne", "rm", u.rest, "e2b-"+u.e2b)
	ways := []struct {
		name string
		once func() error
	}{
		{"1 GiB: cp", func() error { _, err := m.output(find("cp"), u.file, u.file+".copy"); return err }},
		{"1 GiB: REST, PUT of a file", func() error {
			return u.call(http.MethodPut, "/v1/sandboxes/"+u.rest+"/files/raw?path=/tmp/large", nil, nil)
		}},
		{"1 GiB: E2B, POST /files", func() error { return u.call(http.MethodPost, "/files?username=user&path=/tmp/large", nil, nil) }},
		{"1 GiB: demesne cp", func() error { _, err := m.output("demesne", "cp", u.file, u.rest+":/tmp/large"); return err }},
	}
	times := map[string][]time.Duration{}
	for range uploadRounds {
		for _, w := range ways {
			unix.Sync() // write out the data of the previous turn, so that it does not count here
			start := time.Now()
			if err := w.once(); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			times[w.name] = append(times[w.name], time.Since(start))
			if err := u.remove(); err != nil {
				return err
			}
		}
	}
	own := m.add(ways[0].name, "", times[ways[0].name])
	for _, w := range ways[1:] {
		m.ratio(w.name+", against cp", m.add(w.name, "", times[w.name]), own, 2)
	}
	return nil
}

// prepare makes the file and the sandboxes.
func (u *uploader) prepare() error {
	f, err := os.Create(u.file)
	if err != nil {
		return err
	}
	defer f.Close()
	piece := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for range uploadMiB {
		if _, err := f.Write(piece); err != nil {
			return err
		}
	}
	if u.key, err = u.machine.token(); err != nil {
		return err
	}
	var rest struct{ ID string }
	if err := u.call(http.MethodPost, "/v1/sandboxes", []byte(`{"image":"host"}`), &rest); err != nil {
		return err
	}
	var e2b struct{ SandboxID, EnvdAccessToken string }
	if err := u.call(http.MethodPost, "/sandboxes", []byte(`{"templateID":"base","timeout":3600}`), &e2b); err != nil {
		return err
	}
	u.rest, u.e2b, u.token = rest.ID, e2b.SandboxID, e2b.EnvdAccessToken
	return nil
}

// remove removes the copies, so that each turn writes a new file.
func (u *uploader) remove() error {
	if err := os.Remove(u.file + ".copy"); err != nil && !os.IsNotExist(err) {
		return err
	}
	for _, id := range []string{u.rest, "e2b-" + u.e2b} {
		if _, err := u.output("demesne", "exec", id, "--", "rm", "-f", "/tmp/large"); err != nil {
			return err
		}
	}
	return nil
}

// call sends a request with body, or else with the large file. to receives the answer if it is not nil.
func (u *uploader) call(method, path string, body []byte, to any) error {
	in, size, kind := io.Reader(bytes.NewReader(body)), int64(len(body)), "application/json"
	if body == nil {
		f, err := os.Open(u.file)
		if err != nil {
			return err
		}
		defer f.Close()
		in, size, kind = f, uploadMiB<<20, "application/octet-stream"
	}
	r, err := http.NewRequest(method, u.url+path, in)
	if err != nil {
		return err
	}
	r.ContentLength = size
	for name, value := range map[string]string{"Content-Type": kind, "X-API-KEY": u.key, "X-Access-Token": u.token,
		"E2b-Sandbox-Id": u.e2b, "E2b-Sandbox-Port": "49983"} {
		r.Header.Set(name, value)
	}
	if strings.HasPrefix(path, "/v1/") || u.e2b == "" { // not to a sandbox of E2B
		r.Header.Del("E2b-Sandbox-Id")
		r.Header.Del("E2b-Sandbox-Port")
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err == nil && a.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %.300s", method, path, a.Status, text)
	}
	if err == nil && to != nil {
		err = json.Unmarshal(text, to)
	}
	return err
}
