package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"demesne/integration/fixture"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
)

// shelf holds the registry that all programs pull from, and the directories they store images in.
type shelf struct {
	*machine
	reg           *fixture.Registry
	debian, extra string // references; extra is debian plus a small layer
	many          string // forty layers
	dirs          int    // number of directories created
}

// images measures pulling, unpacking and running images, compared with skopeo, umoci and podman.
func images(m *machine) error {
	s, err := newShelf(m)
	if err != nil {
		return err
	}
	defer s.close()
	for _, part := range []func() error{s.ready, s.pulls, s.present, s.memory, s.runs} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

func newShelf(m *machine) (*shelf, error) {
	debian, err := fixture.Debian()
	if err != nil {
		return nil, err
	}
	reg, err := fixture.NewRegistry(m.dir+"/registry", fixture.Options{})
	if err != nil {
		return nil, err
	}
	s := &shelf{machine: m, reg: reg, debian: reg.Ref("debian:1"), extra: reg.Ref("extra:1"), many: reg.Ref("many:1")}
	extra, err := fixture.With(debian, fixture.File("extra", "extra"))
	if err != nil {
		return nil, err
	}
	many, err := manyLayers()
	if err != nil {
		return nil, err
	}
	for repo, img := range map[string]v1.Image{"debian:1": debian, "extra:1": extra, "many:1": many} {
		if err := reg.Push(repo, img); err != nil {
			return nil, err
		}
	}
	conf := m.dir + "/registries.conf"
	m.env = append(m.env, "CONTAINERS_REGISTRIES_CONF="+conf)
	return s, os.WriteFile(conf, []byte(reg.Conf()), 0o644)
}

func manyLayers() (v1.Image, error) {
	entries, err := fixture.Busybox()
	if err != nil {
		return nil, err
	}
	base, err := fixture.Layer(entries...)
	if err != nil {
		return nil, err
	}
	layers := []v1.Layer{base}
	for i := range 39 {
		l, err := fixture.Layer(fixture.File(fmt.Sprint("layer", i), fmt.Sprint(i)))
		if err != nil {
			return nil, err
		}
		layers = append(layers, l)
	}
	return fixture.Image(v1.Config{Env: []string{"PATH=/bin"}}, layers...)
}

func (s *shelf) close() {
	s.reg.Close()
	for i := range s.dirs {
		s.remove(s.name(i))
	}
}

func (s *shelf) name(i int) string { return filepath.Join(s.machine.dir, fmt.Sprint("store", i)) }

// dir creates an empty directory owned by the user that the programs run as. Directories are removed only at the
// end: after many files are deleted, ext4 takes seconds to find room for as many new ones.
func (s *shelf) dir() (string, error) {
	dir := s.name(s.dirs)
	s.dirs++
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	if s.uid >= 0 {
		return dir, os.Chown(dir, s.uid, s.uid)
	}
	return dir, nil
}

// store creates an empty image store and makes demesne use it from now on.
func (s *shelf) store() error {
	dir, err := s.dir()
	s.env = append(s.env, "DEMESNE_IMAGE_STORE="+dir)
	return err
}

// remove deletes a directory tree, including directories that their owner may not enter.
func (s *shelf) remove(dir string) error {
	filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			os.Chmod(p, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}

// ready measures the start-up of demesne-images.
func (s *shelf) ready() error {
	var times []time.Duration
	for range 20 {
		d, err := s.time("demesne-images", "--version")
		if err != nil {
			return err
		}
		times = append(times, d)
	}
	s.atMost("demesne-images, start-up", s.add("demesne-images version", "", times), 15*time.Millisecond)
	return nil
}

// pulls times complete pulls into empty stores; the programs take turns. umoci takes a minute or more, so it runs
// once, and at most for patience. A umoci that is killed then counts as if it had finished, which favours it.
func (s *shelf) pulls() error {
	times := map[string][]time.Duration{}
	median := map[string]time.Duration{}
	for _, turn := range []struct {
		rounds int
		names  []string
	}{{pullRounds, []string{"demesne pull", "podman pull"}}, {1, []string{"skopeo copy + umoci unpack"}}} {
		for range turn.rounds {
			for _, name := range turn.names {
				unix.Sync() // write out the data of the previous pull, so that it does not count here
				d, err := map[string]func() (time.Duration, error){
					"demesne pull": s.pull, "podman pull": s.podman, "skopeo copy + umoci unpack": s.skopeo}[name]()
				if err != nil {
					return err
				}
				if d > 0 {
					fmt.Fprintf(os.Stderr, "bench: one %s: %s\n", name, ms(d))
					times[name] = append(times[name], d)
				}
			}
		}
		for _, name := range turn.names {
			if len(times[name]) > 0 {
				median[name] = s.add(name, "Debian with Python and Node", times[name])
			}
		}
	}
	s.ratio("demesne pull against podman pull", median["demesne pull"], median["podman pull"], 1)
	s.ratio("demesne pull against skopeo copy + umoci unpack", median["demesne pull"], median["skopeo copy + umoci unpack"], 0.7)
	return nil
}

const (
	pullRounds = 3
	patience   = 100 * time.Second
)

// pull fills an empty store. The other parts use the last one.
func (s *shelf) pull() (time.Duration, error) {
	if err := s.store(); err != nil {
		return 0, err
	}
	return s.time("demesne", "pull", "-q", s.debian)
}

func (s *shelf) skopeo() (time.Duration, error) {
	if find("skopeo") == "" || find("umoci") == "" {
		return 0, nil
	}
	dir, err := s.dir()
	if err != nil {
		return 0, err
	}
	copied, err := s.time(find("skopeo"), "copy", "-q", "--insecure-policy", "--src-tls-verify=false", "docker://"+s.debian, "oci:"+dir+"/oci:x")
	if err != nil {
		return 0, err
	}
	cmd := s.command(find("umoci"), "unpack", "--rootless", "--image", dir+"/oci:x", dir+"/bundle")
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	timer := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	err = cmd.Wait()
	if !timer.Stop() {
		return copied + patience, nil
	}
	return copied + time.Since(start), err
}

// podman times a pull by podman. podman needs subordinate ids to unpack files of other owners, so it runs as root
// if the bench does, with storage of its own.
func (s *shelf) podman() (time.Duration, error) {
	if find("podman") == "" {
		return 0, nil
	}
	dir, err := s.dir()
	if err != nil {
		return 0, err
	}
	cmd := s.command(find("podman"), "--root", dir+"/root", "--runroot", dir+"/run", "--storage-driver", "overlay", "pull", "-q", "--tls-verify=false", s.debian)
	if s.uid >= 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	start := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("podman pull: %w: %s", err, out)
	}
	return time.Since(start), nil
}

// present times a pull of an image already in the store, and of an image that shares all but one layer with it.
func (s *shelf) present() error {
	var times []time.Duration
	for range 20 {
		s.reg.Reset()
		d, err := s.time("demesne", "pull", "-q", s.debian)
		if err != nil {
			return err
		}
		times = append(times, d)
	}
	heads, _ := s.reg.Count("HEAD", "/manifests/")
	others := len(s.reg.Requests()) - heads
	s.atMost("demesne pull of a present digest", s.add("demesne pull, present", "", times), 50*time.Millisecond)
	s.limit("… asking the registry", heads == 1 && others <= 1, fmt.Sprintf("%d HEAD, %d other", heads, others), "1 HEAD")
	s.reg.Reset()
	d, err := s.time("demesne", "pull", "-q", s.extra)
	if err != nil {
		return err
	}
	s.add("demesne pull, all but one layer shared", "", []time.Duration{d})
	n, bytes := s.reg.Count("GET", "/blobs/")
	s.limit("second image sharing layers, fetched", n == 2 && bytes < 1<<16, fmt.Sprintf("%d blobs, %d bytes", n, bytes), "config and new layer")
	return nil
}

// memory reports the largest sum of memory that the programs of one pull hold at a time.
func (s *shelf) memory() error {
	if err := s.store(); err != nil {
		return err
	}
	cmd := s.command("demesne", "pull", "-q", s.debian)
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	peak := map[string]float64{}
	for {
		select {
		case err := <-done:
			if err != nil {
				return fmt.Errorf("demesne pull: %w", err)
			}
			s.limit("peak memory of a pull, all its programs", peak["all"] <= 100, strings.TrimSpace(fmt.Sprintf("%.0f MiB", peak["all"])), "<= 100 MiB")
			s.limit("peak memory of a pull, the largest program", peak["one"] <= 100, fmt.Sprintf("%.0f MiB", peak["one"]), "<= 100 MiB")
			return nil
		case <-time.After(15 * time.Millisecond):
			sum := 0.0
			for _, p := range family() {
				v := anonymous(p.pid)
				sum, peak["one"] = sum+v, max(peak["one"], v)
			}
			peak["all"] = max(peak["all"], sum)
		}
	}
}

// runs compares cold runs of an unpacked image with those of the host's rootfs; the cases take turns.
func (s *shelf) runs() error {
	cases := []struct {
		name  string
		flags []string
	}{{"demesne run --image host", []string{"--image", "host"}}, {"demesne run --image debian", []string{"--image", s.debian}}, {"demesne run, 40 layers", []string{"--image", s.many}}}
	if _, err := s.output("demesne", "pull", "-q", s.debian, s.many); err != nil {
		return err
	}
	times, median := map[string][]time.Duration{}, map[string]time.Duration{}
	for round := range 33 {
		for _, c := range cases {
			if err := alone(); err != nil {
				return err
			}
			d, err := s.time(append(append([]string{"demesne", "run"}, c.flags...), "--", "true")...)
			if err != nil {
				return err
			}
			if round >= 3 {
				times[c.name] = append(times[c.name], d)
			}
		}
	}
	for _, c := range cases {
		median[c.name] = s.add(c.name, "cold, single-id", times[c.name])
	}
	s.atMost("an unpacked image over --image host", max(0, median[cases[1].name]-median[cases[0].name]), 3*time.Millisecond)
	return s.mounts()
}

// mounts reads the mount times of a sandbox with forty layers from the traces of its runs.
func (s *shelf) mounts() error {
	var whole, layers []time.Duration
	for range 15 {
		text, err := s.output("demesne", "run", "--json", "--image", s.many, "--", "true")
		if err != nil {
			return err
		}
		whole = append(whole, stage(text, "mounts"))
		layers = append(layers, stage(text, "mounts:layers"))
	}
	if slices.Min(layers) == 0 {
		return errors.New("no stage \"mounts:layers\" in the trace")
	}
	s.add("all mounts of such a sandbox", "stage \"mounts\"", whole)
	s.atMost("40 layers: opened and mounted", s.add("mount of 40 layers", "stage \"mounts:layers\"", layers), 2*time.Millisecond)
	return nil
}
