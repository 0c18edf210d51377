package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"demesne/integration/fixture"

	v1 "github.com/google/go-containerregistry/pkg/v1"
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
func images(m *machine) {
	debian := must(fixture.Debian())
	s := newShelf(m, map[string]v1.Image{"debian:1": debian, "extra:1": must(fixture.With(debian, fixture.File("extra", "extra"))), "many:1": manyLayers()})
	defer s.close()
	s.debian, s.extra, s.many = s.reg.Ref("debian:1"), s.reg.Ref("extra:1"), s.reg.Ref("many:1")
	for _, part := range []func(){s.ready, s.pulls, s.present, s.memory, s.runs} {
		part()
	}
}

// newShelf starts a registry with images, from which all programs pull.
func newShelf(m *machine, images map[string]v1.Image) *shelf {
	s := &shelf{machine: m, reg: must(fixture.NewRegistry(m.dir+"/registry", fixture.Options{}))}
	for repo, image := range images {
		check(s.reg.Push(repo, image))
	}
	conf := m.dir + "/registries.conf"
	check(os.WriteFile(conf, []byte(s.reg.Conf()), 0o644))
	m.env = append(m.env, "CONTAINERS_REGISTRIES_CONF="+conf)
	return s
}

func manyLayers() v1.Image {
	layers := []v1.Layer{must(fixture.Layer(must(fixture.Busybox())...))}
	for i := range 39 {
		layers = append(layers, must(fixture.Layer(fixture.File(fmt.Sprint("layer", i), fmt.Sprint(i)))))
	}
	return must(fixture.Image(v1.Config{Env: []string{"PATH=/bin"}}, layers...))
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
func (s *shelf) dir() string {
	dir := s.name(s.dirs)
	s.dirs++
	check(s.own(dir))
	return dir
}

// store creates an empty image store and makes demesne use it from now on.
func (s *shelf) store() { s.env = append(s.env, "DEMESNE_IMAGE_STORE="+s.dir()) }

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
func (s *shelf) ready() {
	s.atMost("demesne-images, start-up", s.repeated(20, "demesne-images version", "", s.timed("demesne-images", "--version")), 15*time.Millisecond)
}

// pulls times complete pulls into empty stores; the programs take turns. umoci takes a minute or more, so it runs
// once, and at most for patience. A umoci that is killed then counts as if it had finished, which favours it.
func (s *shelf) pulls() {
	const ours, podman, umoci, note = "demesne pull", "podman pull", "skopeo copy + umoci unpack", "Debian with Python and Node"
	took := s.race(pullRounds, 0, synced, entry{name: ours, note: note, run: s.pull}, entry{name: podman, note: note, run: s.podman()})
	slowest := s.repeated(1, umoci, note, s.skopeo())
	s.ratio("demesne pull against podman pull", took[ours], took[podman], 1)
	s.ratio("demesne pull against skopeo copy + umoci unpack", took[ours], slowest, 0.7)
}

const (
	pullRounds = 3
	patience   = 100 * time.Second
)

// pull fills an empty store. The other parts use the last one.
func (s *shelf) pull() time.Duration {
	s.store()
	return must(s.time("demesne", "pull", "-q", s.debian))
}

// skopeo returns the run of skopeo and umoci; nil if one is not installed.
func (s *shelf) skopeo() func() time.Duration {
	if find("skopeo") == "" || find("umoci") == "" {
		return nil
	}
	return func() time.Duration {
		dir := s.dir()
		copied := must(s.time(find("skopeo"), "copy", "-q", "--insecure-policy", "--src-tls-verify=false", "docker://"+s.debian, "oci:"+dir+"/oci:x"))
		cmd := s.command(find("umoci"), "unpack", "--rootless", "--image", dir+"/oci:x", dir+"/bundle")
		start := time.Now()
		check(cmd.Start())
		timer := time.AfterFunc(patience, func() { cmd.Process.Kill() })
		err := cmd.Wait()
		if !timer.Stop() {
			return copied + patience
		}
		check(err)
		return copied + time.Since(start)
	}
}

// podman returns the run of a pull by podman; nil if it is not installed. podman needs subordinate ids to unpack files
// of other owners, so it runs as root if the bench does, with storage of its own.
func (s *shelf) podman() func() time.Duration {
	podman := find("podman")
	if podman == "" {
		return nil
	}
	return func() time.Duration {
		dir := s.dir()
		cmd := s.command(podman, "--root", dir+"/root", "--runroot", dir+"/run", "--storage-driver", "overlay", "pull", "-q", "--tls-verify=false", s.debian)
		if s.uid >= 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		return since(func() {
			if out, err := cmd.CombinedOutput(); err != nil {
				check(fmt.Errorf("podman pull: %w: %s", err, out))
			}
		})
	}
}

// present times a pull of an image already in the store, and of an image that shares all but one layer with it.
func (s *shelf) present() {
	took := s.repeated(20, "demesne pull, present", "", func() time.Duration {
		s.reg.Reset()
		return must(s.time("demesne", "pull", "-q", s.debian))
	})
	heads, _ := s.reg.Count("HEAD", "/manifests/")
	others := len(s.reg.Requests()) - heads
	s.atMost("demesne pull of a present digest", took, 50*time.Millisecond)
	s.limit("… asking the registry", heads == 1 && others <= 1, fmt.Sprintf("%d HEAD, %d other", heads, others), "1 HEAD")
	s.reg.Reset()
	s.repeated(1, "demesne pull, all but one layer shared", "", s.timed("demesne", "pull", "-q", s.extra))
	n, bytes := s.reg.Count("GET", "/blobs/")
	s.limit("second image sharing layers, fetched", n == 2 && bytes < 1<<16, fmt.Sprintf("%d blobs, %d bytes", n, bytes), "config and new layer")
}

// memory reports the largest sum of memory that the programs of one pull hold at a time.
func (s *shelf) memory() {
	s.store()
	held := peaks(15*time.Millisecond, func() { must(s.time("demesne", "pull", "-q", s.debian)) })
	all := held[""]
	delete(held, "")
	s.mib("peak memory of a pull, all its programs", all, 100)
	s.mib("peak memory of a pull, the largest program", slices.Max(slices.Collect(maps.Values(held))), 100)
}

// runs compares cold runs of an unpacked image with those of the host's rootfs; the cases take turns.
func (s *shelf) runs() {
	must(s.output("demesne", "pull", "-q", s.debian, s.many))
	var entries []entry
	for _, c := range []struct{ name, image string }{{"demesne run --image host", "host"}, {"demesne run --image debian", s.debian}, {"demesne run, 40 layers", s.many}} {
		entries = append(entries, entry{name: c.name, note: "cold, single-id", run: s.timed("demesne", "run", "--image", c.image, "--", "true")})
	}
	took := s.cold(30, entries...)
	s.atMost("an unpacked image over --image host", max(0, took["demesne run --image debian"]-took["demesne run --image host"]), 3*time.Millisecond)
	s.mounts()
}

// mounts reads the mount times of a sandbox with forty layers from the traces of its runs.
func (s *shelf) mounts() {
	var whole, layers []time.Duration
	for range 15 {
		text := must(s.output("demesne", "run", "--json", "--image", s.many, "--", "true"))
		whole = append(whole, must(stage(text, "mounts")))
		layers = append(layers, must(stage(text, "mounts:layers")))
	}
	s.add("all mounts of such a sandbox", "stage \"mounts\"", whole)
	s.atMost("40 layers: opened and mounted", s.add("mount of 40 layers", "stage \"mounts:layers\"", layers), 2*time.Millisecond)
}
