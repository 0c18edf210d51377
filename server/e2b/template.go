package e2b

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"demesne/runner"
	"demesne/session"
)

// template is an image that a client has built. Its images have the names local/NAME:TAG.
type template struct {
	ID       string         `json:"id"`
	Name     string         `json:"name"`
	Tags     []templateTag  `json:"tags"`
	CPUs     int            `json:"cpus,omitempty"`
	MemoryMB int            `json:"memory_mb,omitempty"`
	Created  time.Time      `json:"created"`
	Updated  time.Time      `json:"updated"`
	Files    map[string]int `json:"-"`
}

// templateTag names one build of a template.
type templateTag struct {
	Tag     string    `json:"tag"`
	Build   string    `json:"buildID"`
	Created time.Time `json:"createdAt"`
	Start   *startup  `json:"start,omitempty"`
}

// defaultTag is the tag of a name without one.
const defaultTag = "default"

// findTemplate returns the template of an id or a name, with or without a tag. mu is held.
func (st *store) findTemplate(id string) *template {
	name, _, _ := strings.Cut(id, ":")
	if t := st.templates[name]; t != nil {
		return t
	}
	for _, t := range st.templates {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// of returns the tag that the name or id of a client means. Its build is empty if the template has no such tag.
func (t *template) of(id string) templateTag {
	_, tag, ok := strings.Cut(id, ":")
	if !ok {
		tag = defaultTag
	}
	for _, one := range t.Tags {
		if one.Tag == tag {
			return one
		}
	}
	return templateTag{}
}

// image returns the image of a template, by the name or id that a client gave.
func (t *template) image(id string) string { return imageOf(t.ID, cmp.Or(t.of(id).Build, "none")) }

// startup returns what a template starts with, whose images others are built from; nil: nothing.
func (st *store) startup(id string) *startup {
	st.mu.Lock()
	defer st.mu.Unlock()
	if t := st.findTemplate(id); t != nil {
		return t.of(id).Start
	}
	return nil
}

// imageOf returns the name of the image of one build.
func imageOf(template, build string) string { return builtPrefix + template + ":" + build }

// privateOf returns the name of the base of one build, if only a login may pull it.
func privateOf(template, build string) string { return imageOf(template, build) + "-base" }

// builtPrefix begins the names of templates' images. A client names a template instead, so that its layers count.
const builtPrefix = "local/e2b-"

// name gives the image of a build the tags of the build. An image that had them is then without a name.
func (st *store) name(b *build) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	t := b.template
	if st.templates[t.ID] != t {
		return fmt.Errorf("%w: the template was removed", session.ErrNotFound)
	}
	return st.change(t, func() error { t.tag(templateTag{Build: b.id, Start: b.start}, b.tags); return nil })
}

// change changes a template and its record, or neither. mu is held.
func (st *store) change(t *template, f func() error) error {
	before := slices.Clone(t.Tags)
	err := f()
	if err == nil {
		err = st.templateRecords.Put(t.ID, t)
	}
	if err != nil {
		t.Tags = before
	}
	return err
}

// forget removes a template. The caller then collects its images.
func (st *store) forget(t *template) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.templates[t.ID] == t {
		delete(st.templates, t.ID)
		st.ledger.add(Stored{Templates: -1})
	}
	st.templateRecords.Remove(t.ID)
}

// templateInfo is a template in a list.
type templateInfo struct {
	TemplateID  string    `json:"templateID"`
	BuildID     string    `json:"buildID"`
	Aliases     []string  `json:"aliases"`
	Names       []string  `json:"names"`
	Public      bool      `json:"public"`
	CPUCount    int       `json:"cpuCount"`
	MemoryMB    int       `json:"memoryMB"`
	DiskSizeMB  int       `json:"diskSizeMB"`
	CreatedAt   time.Time `json:"createdAt"`
	UpdatedAt   time.Time `json:"updatedAt"`
	CreatedBy   *string   `json:"createdBy"`
	LastSpawned *string   `json:"lastSpawnedAt"`
	SpawnCount  int       `json:"spawnCount"`
	BuildCount  int       `json:"buildCount"`
	EnvdVersion string    `json:"envdVersion"`
	BuildStatus string    `json:"buildStatus"`
}

func (s *builds) templates(w http.ResponseWriter, r *http.Request) error {
	all := []templateInfo{}
	s.store.mu.Lock()
	for id := range sortedKeys(s.store.templates) {
		t := s.store.templates[id]
		i := templateInfo{
			TemplateID: t.ID, Aliases: []string{t.Name}, Names: []string{t.Name}, CPUCount: t.CPUs, MemoryMB: t.MemoryMB, DiskSizeMB: runner.DefaultDisk >> 20,
			CreatedAt: t.Created, UpdatedAt: t.Updated, BuildCount: len(t.Tags), EnvdVersion: version, BuildStatus: "waiting",
		}
		if n := len(t.Tags); n > 0 {
			i.BuildID, i.BuildStatus = t.Tags[n-1].Build, "ready"
		}
		all = append(all, i)
	}
	s.store.mu.Unlock()
	return answer(w, http.StatusOK, all)
}

// templateAbout serves /templates/aliases/NAME and /templates/ID/tags, which are one pattern for a mux.
func (s *builds) templateAbout(w http.ResponseWriter, r *http.Request) error {
	switch id, what := r.PathValue("id"), r.PathValue("what"); {
	case id == "aliases":
		r.SetPathValue("id", what)
		return s.templateExists(w, r)
	case what == "tags":
		return s.templateTags(w, r)
	default:
		return unserved(r)
	}
}

func (s *builds) templateExists(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	s.store.mu.Lock()
	t := s.store.findTemplate(id)
	s.store.mu.Unlock()
	switch {
	case t != nil && len(t.Tags) > 0:
		return answer(w, http.StatusOK, map[string]any{"templateID": t.ID, "public": false})
	case t == nil && (isBaseTemplate(id) || s.opts.Backend.HasImage(r.Context(), id)):
		return answer(w, http.StatusOK, map[string]any{"templateID": id, "public": true})
	default:
		return notFound("template", id)
	}
}

// tagged calls f with the template of a name, and writes it.
func (s *builds) tagged(name string, f func(*template) error) error {
	s.store.mu.Lock()
	t, err := s.store.findTemplate(name), notFound("template", name)
	if t != nil {
		err = s.store.change(t, func() error { return f(t) })
	}
	s.store.mu.Unlock()
	if err == nil {
		s.store.pictures.collect()
	}
	return err
}

// checkTags rejects what cannot be a tag.
func checkTags(tags []string) error {
	for _, tag := range tags {
		if !tagForm.Get().MatchString(tag) {
			return fmt.Errorf("%w: tag %q: must have letters, digits and ._-", session.ErrInvalid, tag)
		}
	}
	return nil
}

// tag gives the build of one more tags.
func (t *template) tag(one templateTag, tags []string) {
	for _, tag := range tags {
		t.Tags = slices.DeleteFunc(t.Tags, func(o templateTag) bool { return o.Tag == tag })
		one.Tag, one.Created = tag, time.Now().UTC()
		t.Tags = append(t.Tags, one)
	}
	t.Updated = time.Now().UTC()
}

func (s *builds) templateTag(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Target string   `json:"target"`
		Tags   []string `json:"tags"`
	}
	if err := body(r, &q); err != nil {
		return err
	}
	if err := checkTags(q.Tags); err != nil {
		return err
	}
	build := ""
	err := s.tagged(q.Target, func(t *template) error {
		one := t.of(q.Target)
		if build = one.Build; build == "" {
			return fmt.Errorf("%w: %q: no such tag", session.ErrNotFound, q.Target)
		}
		t.tag(one, q.Tags)
		return nil
	})
	if err != nil {
		return err
	}
	return answer(w, http.StatusCreated, map[string]any{"buildID": build, "tags": q.Tags})
}

func (s *builds) templateUntag(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}
	if err := body(r, &q); err != nil {
		return err
	}
	err := s.tagged(q.Name, func(t *template) error {
		t.Tags = slices.DeleteFunc(t.Tags, func(o templateTag) bool { return slices.Contains(q.Tags, o.Tag) })
		return nil
	})
	if err != nil {
		return err
	}
	return empty(w)
}

func (s *builds) templateTags(w http.ResponseWriter, r *http.Request) error {
	all := []templateTag{}
	s.store.mu.Lock()
	t := s.store.findTemplate(r.PathValue("id"))
	if t != nil {
		all = append(all, t.Tags...)
	}
	s.store.mu.Unlock()
	if t == nil {
		return notFound("template", r.PathValue("id"))
	}
	return answer(w, http.StatusOK, all)
}

// isBaseImage reports whether a name is one of E2B's own for the image of the template base.
func isBaseImage(name string) bool {
	name = strings.TrimSuffix(strings.TrimPrefix(name, "docker.io/"), ":latest")
	return name == "e2bdev/base" || name == "e2bdev/code-interpreter"
}

func isBaseTemplate(id string) bool { return id == "" || id == "base" || id == "code-interpreter-v1" }
