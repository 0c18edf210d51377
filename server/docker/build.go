package docker

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"demesne/build"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/runner"
	"demesne/session"
)

// builtMost bounds the names of images that a parent makes.
const builtMost = 256

// contextMost bounds the contexts of builds where the parent's disk has no bound.
const contextMost = 2 << 30

// unzipped returns the content of a tar that may be compressed by gzip.
func unzipped(r io.Reader) (io.Reader, error) {
	b := bufio.NewReader(r)
	if magic, _ := b.Peek(2); len(magic) == 2 && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, fail(http.StatusBadRequest, "read gzip: %v", err)
		}
		return z, nil
	}
	return b, nil
}

// build builds an image of a tar, in the classic builder's protocol. The image has a name in the store that only this parent
// uses: it never takes the place of one of the caller's.
func (s *server) build(w http.ResponseWriter, r *http.Request) error {
	o, names, err := s.buildOptions(r)
	if err != nil {
		return err
	}
	f, err := s.spool(r) // before the lock: a client may be slow
	if err != nil {
		return err
	}
	defer f.Close()
	s.building.Lock()
	defer s.building.Unlock()
	if err := s.beginBuild(&o); err != nil {
		return err
	}
	before, err := layers()
	defer func() { s.endBuild(before) }()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	to := &buildLog{e: json.NewEncoder(flushed{w})}
	var log io.Writer = to
	if isOn(r, "q") {
		log = io.Discard
	}
	built, err := build.Run(r.Context(), o, build.Streams{Stdin: f.file, Log: log})
	if err != nil {
		to.e.Encode(map[string]any{"errorDetail": map[string]string{"message": err.Error()}, "error": err.Error()})
		return nil
	}
	s.mu.Lock()
	s.owned = append(s.owned, o.Names[0])
	for _, name := range append(names, built.Digest) {
		s.built[name] = o.Names[0]
	}
	s.mu.Unlock()
	to.e.Encode(map[string]any{"aux": map[string]string{"ID": built.Digest}})
	if isOn(r, "q") {
		return to.e.Encode(map[string]string{"stream": built.Digest + "\n"})
	}
	to.e.Encode(map[string]string{"stream": "Successfully built " + built.Digest + "\n"})
	for _, name := range r.URL.Query()["t"] {
		to.e.Encode(map[string]string{"stream": "Successfully tagged " + name + "\n"})
	}
	return nil
}

// noBuildKit tells the caller once what Docker's client 20.10 hides: it shows the status of this answer, but not the text.
func (s *server) noBuildKit(http.ResponseWriter, *http.Request) error {
	err := fail(http.StatusNotImplemented, "BuildKit's protocol is not spoken here: set DOCKER_BUILDKIT=0")
	s.buildKit.Do(func() { fmt.Fprintln(os.Stderr, "demesne: docker:", err) })
	return err
}

// buildOptions reads the parameters of a build. Its steps have the rules and the limits of a container, and no rule at all
// where the parent's cannot be said in the words of a build.
func (s *server) buildOptions(r *http.Request) (o build.Options, names []string, err error) {
	q := r.URL.Query()
	most, err := s.most()
	if err != nil {
		return o, nil, err
	}
	s.mu.Lock()
	full := len(s.built) >= builtMost || len(s.owned) >= builtMost
	s.mu.Unlock()
	if full {
		return o, nil, fail(http.StatusConflict, "%d names of images exist already", builtMost)
	}
	e, err := s.rules()
	if err != nil {
		return o, nil, err
	}
	o = build.Options{
		Context: "-", File: q.Get("dockerfile"), Target: q.Get("target"), NoCache: isOn(r, "nocache"), Progress: "plain", Names: []string{ownPrefix + newID()[:24]},
		Egress: firstOf(e.Mode, runner.NoEgress), Allow: e.Allow,
		Limits: partOf(most), MaxLayers: -1,
	}
	if len(e.Deny) > 0 || e.File != "" || e.Learn {
		o.Egress, o.Allow = runner.NoEgress, nil
	}
	if q.Get("remote") != "" || q.Get("version") == "2" || q.Get("networkmode") == "host" {
		return o, nil, fail(http.StatusForbidden, "only the classic builder with a context as tar, and no host network: DOCKER_BUILDKIT=0")
	}
	if o.File != "" && !filepath.IsLocal(o.File) {
		return o, nil, fail(http.StatusBadRequest, "the Dockerfile (%.256s) must be within the build context", o.File)
	}
	args, labels := map[string]*string{}, map[string]string{}
	for name, v := range map[string]any{"buildargs": &args, "labels": &labels} {
		if text := q.Get(name); text != "" {
			if err := json.Unmarshal([]byte(text), v); err != nil {
				return o, nil, fail(http.StatusBadRequest, "%s: %v", name, err)
			}
		}
	}
	for name, value := range args {
		if value != nil && name != "" { // without a value it would come from this process
			o.Args = append(o.Args, name+"="+*value)
		}
	}
	for name, value := range labels {
		o.Labels = append(o.Labels, name+"="+value)
	}
	for _, name := range q["t"] {
		if _, err := imageref.Parse(name); err != nil {
			return o, nil, fail(http.StatusBadRequest, "invalid reference: %.256q", name)
		}
		names = append(names, fullName(name))
	}
	return o, names, nil
}

// beginBuild takes the limits of a build from the budget, and the images that it may name: only images of the store, so that the
// sandbox chooses nothing that a registry is asked for.
func (s *server) beginBuild(o *build.Options) error {
	most, err := s.most()
	if err != nil {
		return err
	}
	return s.claim(func() error {
		if err := s.fits(most, o.Limits); err != nil {
			return err
		}
		s.step, o.Stored = o.Limits, maps.Clone(s.built)
		if left := s.room(most); left >= 0 {
			if o.MaxLayers = left / 2; o.MaxLayers == 0 { // the other half is for containers that begin meanwhile
				s.step = runner.Limits{}
				return fail(http.StatusInsufficientStorage, "no disk space is left for layers: the images that were built here have %d bytes", s.layers)
			}
			s.step.Disk += o.MaxLayers
		}
		return nil
	}, func() { s.step = runner.Limits{} })
}

// endBuild gives the limits back, and counts the layers that are new.
func (s *server) endBuild(before map[oci.Digest]int64) {
	now, _ := layers()
	s.mu.Lock()
	s.step = runner.Limits{}
	for id, size := range now {
		if _, old := before[id]; !old {
			s.layers += size
		}
	}
	s.mu.Unlock()
	s.settle()
}

// layers returns the layers of all images of the store, with their sizes.
func layers() (map[oci.Digest]int64, error) {
	c, err := session.OpenImages()
	if err != nil {
		return nil, err
	}
	defer c.Store.Close()
	all, err := c.Store.List()
	if err != nil {
		return nil, err
	}
	sizes := map[oci.Digest]int64{}
	for _, l := range all {
		for _, one := range l.Layers {
			sizes[one.Digest] = one.Size
		}
	}
	return sizes, nil
}

// spooled is the context of a build in a file without a name. What it takes is taken from the disk limit, or from contextMost.
type spooled struct {
	s    *server
	most runner.Limits
	file *os.File
	size int64
}

func (f *spooled) Write(b []byte) (int, error) {
	n := int64(len(b))
	f.s.mu.Lock()
	err := f.s.fits(f.most, runner.Limits{Disk: n})
	if err != nil || f.most.Disk < 0 && f.s.contexts+n > contextMost {
		f.s.mu.Unlock()
		return 0, fail(http.StatusRequestEntityTooLarge, "the context is too large: no disk space is left for more than %d bytes", f.size)
	}
	f.size, f.s.contexts = f.size+n, f.s.contexts+n
	f.s.mu.Unlock()
	return f.file.Write(b)
}

// Close ends the file, and gives its space back.
func (f *spooled) Close() {
	f.file.Close()
	f.s.mu.Lock()
	f.s.contexts -= f.size
	f.s.mu.Unlock()
}

// spool puts the body of a request into a file.
func (s *server) spool(r *http.Request) (*spooled, error) {
	most, err := s.most()
	if err != nil {
		return nil, err
	}
	in, err := unzipped(r.Body)
	if err != nil {
		return nil, err
	}
	file, err := os.CreateTemp(s.dir, "context-")
	if err != nil {
		return nil, err
	}
	os.Remove(file.Name())
	f := &spooled{s: s, most: most, file: file}
	if _, err = io.Copy(f, in); err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		var own *failure
		if !errors.As(err, &own) {
			err = fail(http.StatusBadRequest, "read context: %v", err)
		}
		return nil, err
	}
	return f, nil
}

// buildLog passes the output of a build on.
type buildLog struct {
	mu sync.Mutex
	e  *json.Encoder
}

func (l *buildLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(b), l.e.Encode(map[string]string{"stream": string(b)})
}
