package docker

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"

	"demesne/build"
	"demesne/images"
	"demesne/images/imageref"
	"demesne/internal/text"
	"demesne/session"
)

// fullName returns the name that two spellings of an image have in common.
func fullName(name string) string {
	if ref, err := imageref.Parse(name); err == nil && ref.Full != "" {
		return ref.Full
	}
	return name
}

// storeName returns the name in the store of an image that a client names. Images that clients built come first.
func (s *server) storeName(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own := s.built[fullName(name)]; own != "" {
		return own
	}
	if _, digest, ok := strings.Cut(name, "@"); ok && s.built[digest] != "" {
		return s.built[digest]
	}
	return firstOf(s.built[name], name)
}

// ownPrefix is the beginning of names in the store of images that clients built. Other parents' are not this one's.
const ownPrefix = "local/demesne-docker/"

// names returns the names by which clients of this parent know an image of the store.
func (s *server) names(l *images.Image) (names []string) {
	for _, name := range l.Names {
		if ref, err := imageref.Parse(name); err == nil && !ref.Local() && !strings.Contains(name, ownPrefix) {
			names = append(names, strings.TrimPrefix(strings.TrimPrefix(name, "docker.io/library/"), "docker.io/"))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for known, own := range s.built {
		if slices.Contains(l.Names, fullName(own)) && !strings.HasPrefix(known, "sha256:") {
			names = append(names, strings.TrimPrefix(strings.TrimPrefix(known, "docker.io/library/"), "docker.io/"))
		}
	}
	return names
}

func (s *server) listImages(w http.ResponseWriter, r *http.Request) error {
	f, err := filtersOf(r)
	if err != nil {
		return err
	}
	c, err := session.OpenImages()
	if err != nil {
		return err
	}
	defer c.Store.Close()
	all, err := c.Store.List()
	if err != nil {
		return err
	}
	list := []map[string]any{}
	for _, l := range all {
		names := s.names(l.Image)
		if len(names) == 0 || !f.labels(l.Config.Labels) || !f.any("reference", func(v string) bool {
			return slices.ContainsFunc(names, func(n string) bool { return n == v || strings.HasPrefix(n, v+":") || fullName(n) == fullName(v) })
		}) {
			continue
		}
		list = append(list, map[string]any{
			"Id": l.Digest, "ParentId": "", "RepoTags": names, "RepoDigests": []string{}, "Created": l.Created.Unix(), "Size": l.Size, "VirtualSize": l.Size,
			"SharedSize": -1, "Containers": -1, "Labels": l.Config.Labels,
		})
	}
	return answer(w, http.StatusOK, list)
}

func (s *server) inspectImage(w http.ResponseWriter, r *http.Request) error {
	name, verb := r.PathValue("name"), ""
	for _, v := range []string{"/json", "/history"} {
		if rest, ok := strings.CutSuffix(name, v); ok {
			name, verb = rest, v
		}
	}
	if verb == "" {
		return fail(http.StatusNotFound, "page not found")
	}
	img, err := s.image(name)
	if err != nil {
		return err
	}
	if verb == "/history" {
		return answer(w, http.StatusOK, []any{})
	}
	c := img.Config
	layers := []string{}
	for _, id := range img.DiffIDs() {
		layers = append(layers, string(id))
	}
	return answer(w, http.StatusOK, map[string]any{
		"Id": img.Digest, "RepoTags": append([]string{}, s.names(img)...), "RepoDigests": []string{}, "Parent": "", "Comment": "", "Created": stampText(img.Created), "Author": "",
		"Architecture": firstOf(c.Architecture, runtime.GOARCH), "Os": "linux", "Size": img.Size, "VirtualSize": img.Size, "DockerVersion": "",
		"Config": map[string]any{
			"Env": c.Env, "Cmd": c.Cmd, "Entrypoint": c.Entrypoint, "WorkingDir": c.WorkingDir, "User": c.User, "Labels": c.Labels, "StopSignal": c.StopSignal, "Image": "",
		},
		"RootFS": map[string]any{"Type": "layers", "Layers": layers}, "GraphDriver": map[string]any{"Name": "overlayfs", "Data": nil}, "Metadata": map[string]any{},
	})
}

// pullImage answers for an image that the store has. No registry is asked: the caller pulls images.
func (s *server) pullImage(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	if q.Get("fromSrc") != "" {
		return fail(http.StatusNotImplemented, "docker import is not supported")
	}
	name := q.Get("fromImage")
	if tag := q.Get("tag"); strings.HasPrefix(tag, "sha256:") {
		name += "@" + tag
	} else if tag != "" {
		name += ":" + tag
	}
	img, err := s.image(name)
	if err != nil {
		return fail(http.StatusNotFound, "pull access denied for %.256s: the store of the sandbox's caller does not have it; outside, demesne pull %s gets it", name, text.SafeLine(name))
	}
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.Encode(map[string]string{"status": "Digest: " + string(img.Digest)})
	return e.Encode(map[string]string{"status": "Status: Image is up to date for " + name})
}

// tagImage gives an image another name, which only this parent knows.
func (s *server) tagImage(w http.ResponseWriter, r *http.Request) error {
	name, ok := strings.CutSuffix(r.PathValue("name"), "/tag")
	if !ok {
		return fail(http.StatusForbidden, "images cannot be pushed from here")
	}
	img, err := s.image(name)
	if err != nil {
		return err
	}
	to := r.URL.Query().Get("repo") + ":" + firstOf(r.URL.Query().Get("tag"), "latest")
	if _, err := imageref.Parse(to); err != nil {
		return fail(http.StatusBadRequest, "invalid reference: %.256q", to)
	}
	own := s.storeName(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.built) >= builtMost {
		return fail(http.StatusConflict, "%d names of images exist already", builtMost)
	}
	if len(img.Names) > 0 && s.built[fullName(name)] == "" {
		own = img.Names[0]
	}
	s.built[fullName(to)] = own
	w.WriteHeader(http.StatusCreated)
	return nil
}

// removeImage removes a name that clients of this parent gave. The caller's names stay.
func (s *server) removeImage(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	if _, err := s.image(name); err != nil {
		return err
	}
	s.mu.Lock()
	_, own := s.built[fullName(name)]
	delete(s.built, fullName(name))
	s.mu.Unlock()
	if !own {
		return fail(http.StatusForbidden, "image %.256s belongs to the sandbox's caller", name)
	}
	return answer(w, http.StatusOK, []map[string]string{{"Untagged": name}})
}

// pruneNone removes nothing: images that clients built end with the parent, and their layers are the store's.
func (s *server) pruneNone(w http.ResponseWriter, _ *http.Request) error {
	return answer(w, http.StatusOK, map[string]any{"ImagesDeleted": []any{}, "CachesDeleted": []any{}, "SpaceReclaimed": 0})
}

// dropBuilt removes the images that clients built. It waits for a build that is ending, which may add one.
func (s *server) dropBuilt() {
	s.building.Lock()
	defer s.building.Unlock()
	for _, own := range s.owned {
		ref, err := imageref.Parse(own)
		if err == nil {
			err = build.Drop(context.Background(), ref)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, text.SafeLine("docker: remove image: "+err.Error()))
		}
	}
}
