package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	pushSize   = 300 << 20
	pushRounds = 5
)

// push measures pushes of an image of 300 MB, compared with skopeo in the same minutes. Each push goes to a registry of the
// reference implementation that has nothing, so nothing is mounted or left out.
func push(m *machine) {
	if find("docker-registry") == "" || find("skopeo") == "" {
		m.limit("demesne push against skopeo copy", true, "not installed", "<= 1.00 x")
		return
	}
	dir := filepath.Join(m.dir, "push")
	check(os.MkdirAll(filepath.Join(dir, "root"), 0o777))
	defer os.RemoveAll(dir)
	check(os.WriteFile(filepath.Join(dir, "root", "data"), halfText(pushSize), 0o644))
	check(os.Chmod(dir, 0o777))
	m.env = append(m.env, "DEMESNE_IMAGE_STORE="+dir+"/store")
	for _, argv := range [][]string{
		{"demesne", "import", "-q", dir + "/root", "local/plain"}, {"demesne", "save", "-o", dir + "/plain.tar", "local/plain"},
		{find("mkdir"), dir + "/plain"}, {find("tar"), "-C", dir + "/plain", "-xf", dir + "/plain.tar"},
		{find("skopeo"), "copy", "-q", "--insecure-policy", "oci:" + dir + "/plain", "oci:" + dir + "/gzip:x"}, // skopeo compresses
		{"demesne", "pull", "-q", "oci:" + dir + "/gzip:x"},
	} {
		must(m.output(argv...))
	}
	m.pushes("compressed on the way", dir, "oci:"+dir+"/plain", "local/plain")
	m.pushes("compressed before", dir, "oci:"+dir+"/gzip:x", "oci:"+dir+"/gzip:x")
}

// pushes times pushes of one image; the programs take turns.
func (m *machine) pushes(kind, dir, layout, image string) {
	pushTo := func(argv func(to string) []string) func() time.Duration {
		return func() time.Duration {
			host, end, err := serveRegistry(dir)
			check(err)
			defer end()
			return must(m.time(argv(host + "/o/n:1")...))
		}
	}
	const ours, theirs = "demesne push", "skopeo copy"
	note := "300 MB, " + kind
	took := m.race(pushRounds, 1, atOnce,
		entry{name: ours, note: note, run: pushTo(func(to string) []string {
			return []string{"demesne", "push", "-q", "--tls-verify=false", image, to}
		})},
		entry{name: theirs, note: note, run: pushTo(func(to string) []string {
			return []string{find("skopeo"), "copy", "-q", "--insecure-policy", "--dest-tls-verify=false", layout, "docker://" + to}
		})})
	m.ratio("demesne push against skopeo copy, "+kind, took[ours], took[theirs], 1)
}

// serveRegistry starts an empty registry, which end stops and removes.
func serveRegistry(dir string) (host string, end func(), err error) {
	data, err := os.MkdirTemp(dir, "registry-")
	if err != nil {
		return "", nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	host = l.Addr().String()
	l.Close()
	conf := filepath.Join(data, "config.yml")
	text := fmt.Sprintf("version: 0.1\nlog: {level: error, accesslog: {disabled: true}}\nstorage: {filesystem: {rootdirectory: %q}}\nhttp: {addr: %q}\n", data, host)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		return "", nil, err
	}
	cmd := exec.Command(find("docker-registry"), "serve", conf)
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	end = func() {
		cmd.Process.Kill()
		cmd.Wait()
		os.RemoveAll(data)
	}
	for range 500 {
		if resp, err := http.Get("http://" + host + "/v2/"); err == nil {
			resp.Body.Close()
			return host, end, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	end()
	return "", nil, fmt.Errorf("start registry on %s: no answer", host)
}

// halfText returns bytes that compress about as programs do: words, and a tenth of noise.
func halfText(size int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	words := make([]string, 4000)
	for i := range words {
		word := make([]byte, 3+r.IntN(9))
		for j := range word {
			word[j] = byte(r.IntN(96) + 32)
		}
		words[i] = string(word)
	}
	var b strings.Builder
	b.Grow(size + 4<<10)
	for b.Len() < size {
		for range 300 {
			b.WriteString(words[r.IntN(len(words))])
		}
		for range 25 {
			n := r.Uint64()
			for range 8 {
				b.WriteByte(byte(n))
				n >>= 8
			}
		}
	}
	return []byte(b.String()[:size])
}
