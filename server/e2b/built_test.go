package e2b

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"demesne/server"
	"demesne/session"
)

// begin sends a recipe for a template of that name. It returns the status and the path of the build.
func (r *rig) begin(name, recipe string) (status int, path string) {
	r.Helper()
	resp, text := r.control("POST", "/v3/templates", `{"name":"`+name+`"}`)
	var made struct{ TemplateID, BuildID string }
	if err := json.Unmarshal([]byte(text), &made); err != nil || resp.StatusCode != 202 {
		r.Fatalf("%s: %d %s", name, resp.StatusCode, text)
	}
	path = "/templates/" + made.TemplateID + "/builds/" + made.BuildID
	resp, _ = r.control("POST", "/v2"+path, recipe)
	return resp.StatusCode, path
}

// build builds a template, and returns how the build ended: "ready", "error: REASON", or the status of a refusal.
func (r *rig) build(name, recipe string) string {
	r.Helper()
	status, path := r.begin(name, recipe)
	if status != 202 {
		return fmt.Sprint(status)
	}
	return r.ends(path)
}

func (r *rig) ends(path string) string {
	r.Helper()
	for ; ; time.Sleep(time.Millisecond) {
		_, text := r.control("GET", path+"/status", "")
		var s struct {
			Status string
			Reason struct{ Message string }
		}
		switch json.Unmarshal([]byte(text), &s); s.Status {
		case "ready":
			return "ready"
		case "error":
			return "error: " + s.Reason.Message
		case "building":
		default:
			r.Fatal(text)
		}
		if r.Context().Err() != nil {
			r.Fatal(text)
		}
	}
}

// layers returns a recipe whose steps add layers, NAME SIZE each.
func layers(from string, all ...string) string {
	q := recipe{FromImage: from}
	if from != "debian" {
		q = recipe{FromTemplate: from}
	}
	for _, l := range all {
		q.Steps = append(q.Steps, step{Type: "RUN", Args: []string{l}})
	}
	text, _ := json.Marshal(q)
	return string(text)
}

// images checks how many images of templates are in the store, and for how many a build left something.
func (r *rig) images(what string, want int) {
	r.Helper()
	if got := len(r.fake.images) - 1; got != want || len(r.fake.steps) != want {
		r.Errorf("%s: %d images, %d with results of steps, want %d", what, got, len(r.fake.steps), want)
	}
}

// TestQuotaTemplates checks that the images of templates count, that builds do not pass the ceiling, and that a rebuild, a
// failed build and a removed template give back the count and the image (M16).
func TestQuotaTemplates(t *testing.T) {
	r := under(t, Quota{Bytes: 400 * kilo, Files: 60, Volume: 200 * kilo, Templates: 3})
	one := fixedOf(1)
	counts := func(what string, templates int64, images int64, bytes int64) {
		t.Helper()
		r.counted(what, Stored{Bytes: images*one.Bytes + bytes, Files: images * one.Files, Templates: templates})
		r.images(what, int(images))
	}
	is := func(what, got, want string) {
		t.Helper()
		if got != want && (want != "error" || !strings.HasPrefix(got, "error: ")) {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	for i := range 20 {
		is("a rebuild", r.build("a", layers("debian", fmt.Sprintf("l%d %d", i, 100*kilo))), "ready")
	}
	counts("20 builds of a template", 1, 1, 100*kilo)
	for i := range 5 {
		is("too large", r.build("a", layers("debian", fmt.Sprintf("m%d %d", i, 201*kilo))), "error")
	}
	is("the base is missing", r.build("a", layers("none", "x 1")), "error")
	r.fake.builds = func(server.Build) error { return errors.New("a step failed") }
	is("a failed build", r.build("a", layers("debian", "x 1000")), "error")
	r.fake.builds = nil
	counts("failed builds", 1, 1, 100*kilo)
	is("over it", r.build("b", layers("a", "n 1000")), "ready")
	counts("a layer that two have counts once", 2, 2, 100*kilo+1000)
	r.control("DELETE", "/templates/a", "")
	counts("a layer that another has still counts", 1, 1, 100*kilo+1000)
	is("an image by its name", r.build("c", strings.Replace(layers("debian"), "debian", "local/e2b-x:y", 1)), "error")
	r.control("DELETE", "/templates/c", "")
	r.control("POST", "/templates/tags", `{"target":"b","tags":["v1"]}`)
	is("the name goes to another image", r.build("b", layers("debian", "o 2000")), "ready")
	counts("the first has a tag", 1, 2, 100*kilo+3000)
	r.control("DELETE", "/templates/tags", `{"name":"b","tags":["v1"]}`)
	counts("it has none", 1, 1, 2000)
	if status, _ := r.begin("b", layers("debian", strings.Split(strings.Repeat("x 1,", 30), ",")...)); status != 507 {
		t.Errorf("more files than there may be: %d", status)
	}
	r.volume("v")
	r.api.store.ledger.add(Stored{Bytes: 390 * kilo})
	if status, _ := r.begin("b", layers("debian", "x 1")); status != 507 {
		t.Errorf("a full namespace: %d", status)
	}
	r.restart()
	r.control("DELETE", "/templates/b", "")
	r.control("DELETE", "/volumes/v", "")
	counts("nothing", 0, 0, 0)
}

// TestQuotaTemplateInUse checks that an image that a sandbox uses counts until it is removed, also after a restart, that a
// template that is removed during its build leaves no image, and that the next server removes what a killed build left (M16).
func TestQuotaTemplateInUse(t *testing.T) {
	r := under(t, Quota{Bytes: 400 * kilo, Files: 60, Volume: 200 * kilo})
	r.build("a", layers("debian", "l 1000"))
	made := r.make(`{"templateID":"a"}`)
	for name := range r.fake.images {
		r.fake.busy[name] = true
	}
	want := Stored{Bytes: fixedOf(1).Bytes + 1000, Files: fixedOf(1).Files}
	r.control("DELETE", "/templates/a", "")
	r.counted("in use", want)
	clear(r.fake.busy)
	r.control("DELETE", "/sandboxes/"+made.ID, "")
	r.counted("not any more", Stored{})
	r.images("not any more", 0)

	running, proceed := make(chan int64), make(chan bool)
	r.fake.builds = func(b server.Build) error { running <- b.MaxLayers; <-proceed; return nil }
	_, path := r.begin("b", layers("debian", "l 1000"))
	if most := <-running; most != 200*kilo || r.stored().Bytes != most+fixedOf(1).Bytes {
		t.Errorf("a build that runs: %d of %+v", most, r.stored())
	}
	r.control("DELETE", "/templates/b", "")
	close(proceed)
	if got := r.ends(path); !strings.HasPrefix(got, "error: ") {
		t.Errorf("removed meanwhile: %s", got)
	}
	r.counted("removed meanwhile", Stored{})
	r.images("removed meanwhile", 0)

	r.fake.builds = nil
	if err := recordsOf[built](r.api.store.dir, "built").Put("k", &built{Template: "t", Build: "k", Fixed: fixedOf(1), Blobs: map[string]int64{"l": 5}}); err != nil {
		t.Fatal(err)
	}
	r.fake.images[imageOf("t", "k")], r.fake.steps[imageOf("t", "k")] = map[string]int64{"l": 5}, true
	r.counted("of a killed server", Stored{})
	r.images("of a killed server", 0)
}

// TestBuildsEnd checks that a server that closes waits for its builds, and begins none afterwards.
func TestBuildsEnd(t *testing.T) {
	r := newRig(t)
	running, proceed, closed := make(chan bool), make(chan bool), make(chan bool)
	ended := false
	r.fake.builds = func(server.Build) error { close(running); <-proceed; ended = true; return nil }
	r.begin("a", layers("debian", "l 1"))
	<-running
	go func() { r.api.Close(); close(closed) }()
	close(proceed)
	<-closed
	if !ended {
		t.Error("it did not wait")
	}
	if status, _ := r.begin("b", layers("debian", "l 1")); status < 400 {
		t.Errorf("a build after the end: %d", status)
	}
}

// TestUnpackBounds checks that an archive for a build counts before it is unpacked, entry by entry (M16).
func TestUnpackBounds(t *testing.T) {
	archive := func(all ...*tar.Header) []byte {
		var text bytes.Buffer
		z := gzip.NewWriter(&text)
		w := tar.NewWriter(z)
		for _, h := range all {
			w.WriteHeader(h)
			w.Write(make([]byte, h.Size))
		}
		w.Close()
		z.Close()
		return text.Bytes()
	}
	file := func(name string, size int64) *tar.Header {
		return &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o600, Size: size}
	}
	many := func(typeflag byte, n int) (all []*tar.Header) {
		for i := range n {
			all = append(all, &tar.Header{Name: fmt.Sprint("f", i), Linkname: "x", Typeflag: typeflag, Mode: 0o700})
		}
		return all
	}
	deep := strings.Repeat("d/", 30)
	for _, c := range []struct {
		name string
		all  []*tar.Header
		want error
	}{
		{"fits", []*tar.Header{file("a", 10), file("d/b", 10*kilo)}, nil},
		{"bytes that compress", []*tar.Header{file("a", 50<<20)}, quotaError{"bytes", 256 * kilo}},
		{"the same file again", []*tar.Header{file("a", 100*kilo), file("a", 100*kilo), file("a", 100*kilo)}, quotaError{"bytes", 256 * kilo}},
		{"empty files", many(tar.TypeReg, 21), quotaError{"files and directories", 20}},
		{"directories", many(tar.TypeDir, 21), quotaError{"files and directories", 20}},
		{"links", many(tar.TypeSymlink, 21), quotaError{"files and directories", 20}},
		{"parents", []*tar.Header{file(deep+"f", 0)}, quotaError{"files and directories", 20}},
		{"too deep", []*tar.Header{file(strings.Repeat("d/", maxDepth)+"f", 0)}, session.ErrInvalid},
	} {
		l := &ledger{most: Quota{Bytes: 256 * kilo, Files: 20}}
		w := &workspace{dir: t.TempDir(), ledger: l}
		_, err := unpack(filepath.Join(w.dir, "step0"), bytes.NewReader(archive(c.all...)), w.take)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		root, _ := os.OpenRoot(w.dir)
		is, err := measure(root, "step0")
		if root.Close(); is.Bytes > l.has.Bytes || is.Files > l.has.Files || err != nil {
			t.Errorf("%s: there is %+v, counted %+v, %v", c.name, is, l.has, err)
		}
		if err := w.close(); err != nil || l.has != (Stored{}) {
			t.Errorf("%s: %+v is left, %v", c.name, l.has, err)
		}
	}
}

// TestLimitsShown checks that a client reads the limits that its sandbox has, and not those that its template asks for.
func TestLimitsShown(t *testing.T) {
	r := newRig(t)
	for name, asked := range map[string]*template{"none": nil, "more": {CPUs: 8, MemoryMB: 8192}, "less": {CPUs: 1, MemoryMB: 512}} {
		rec, want := record{}, 2048
		if name == "less" {
			want = 512
		}
		rec.limit(r.fake.Grants(t.Context(), asked.limits(), 0).Limits)
		if d := rec.listed(); d.MemoryMB != want || d.CPUCount != 1 || d.DiskSizeMB != 100 {
			t.Errorf("%s: %d processors, %d MiB, %d MiB of disk", name, d.CPUCount, d.MemoryMB, d.DiskSizeMB)
		}
	}
	rec := r.make(`{}`)
	if _, text := r.control("GET", "/sandboxes/"+rec.ID, ""); !strings.Contains(text, `"cpuCount":1,"memoryMB":2048,"diskSizeMB":100`) {
		t.Error(text)
	}
}

// TestPrivateBase checks that a login is for one pull: it goes to the registry only, all of the image counts for the namespace,
// and neither the base nor the login stays.
func TestPrivateBase(t *testing.T) {
	r := under(t, Quota{Bytes: 400 * kilo})
	said := ""
	for _, c := range []struct{ what, recipe, want string }{
		{"right", `{"fromImage":"registry.test/app","fromImageRegistry":{"type":"registry","username":"me","password":"right"}}`, "ready"},
		{"wrong", `{"fromImage":"registry.test/app","fromImageRegistry":{"type":"registry","username":"me","password":"s3cret"}}`, "error: the registry refused the login"},
		{"a service account", `{"fromImage":"registry.test/app","fromImageRegistry":{"type":"gcp","serviceAccountJson":"{\"k\":\"s3cret\"}"}}`, "error: the registry refused the login"},
		{"aws", `{"fromImage":"registry.test/app","fromImageRegistry":{"type":"aws","awsAccessKeyId":"a","awsSecretAccessKey":"s3cret","awsRegion":"r"}}`, "400"},
		{"another type", `{"fromImage":"registry.test/app","fromImageRegistry":{"type":"s3cret"}}`, "400"},
		{"no password", `{"fromImage":"registry.test/app","fromImageRegistry":{"type":"registry","username":"s3cret"}}`, "400"},
		{"two in one", `{"fromImage":"registry.test/app","fromImageRegistry":{"type":"registry","username":"me:s3cret","password":"s3cret"}}`, "400"},
		{"of a template", `{"fromTemplate":"right","fromImageRegistry":{"type":"registry","username":"me","password":"s3cret"}}`, "400"},
		{"null", `{"fromImage":"debian","fromImageRegistry":null}`, "ready"},
	} {
		name := strings.ReplaceAll(c.what, " ", "-")
		status, path := r.begin(name, c.recipe)
		got := fmt.Sprint(status)
		if status == 202 {
			got = r.ends(path)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
		_, text := r.control("GET", path+"/status", "")
		said += text
	}
	if got := r.api.store.ledger.stored().Bytes - 2*fixedOf(0).Bytes; got != 50*kilo {
		t.Errorf("the private base counts %d bytes", got)
	}
	r.images("after it", 2)
	filepath.WalkDir(r.state, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			text, _ := os.ReadFile(path)
			said += string(text)
		}
		return err
	})
	if strings.Contains(said, "s3cret") || strings.Contains(said, `"right"}`) && strings.Contains(said, "password") {
		t.Errorf("a login stays: %s", said)
	}
}
