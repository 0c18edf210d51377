package e2b

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"demesne/internal/fsutil"
	"demesne/runner"
	"demesne/server"
	"demesne/session"
)

// volumeData has the files of volumes, and volumeUploads files that are being uploaded.
const volumeData, volumeUploads = "volume-data", "volume-uploads"

// volume is a directory of this machine that sandboxes mount.
type volume struct {
	ID    string `json:"volumeID"`
	Name  string `json:"name"`
	Token string `json:"token,omitempty"`

	held *holding
}

// volumeMount is a volume at a path of a sandbox.
type volumeMount struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

type volumes struct {
	dir     *os.Root
	records fsutil.Records[volume]
	users   func() []*entry // the sandboxes
	ledger  *ledger
	access  *server.Access

	mu  sync.Mutex
	all map[string]*volume
}

// openVolumes reads the records, and measures the volumes.
func openVolumes(dir *os.Root, l *ledger) (*volumes, error) {
	v := &volumes{dir: dir, records: recordsOf[volume](dir, "volumes"), ledger: l}
	all, err := v.records.Load()
	if err = errors.Join(err, dir.MkdirAll(volumeData, 0o700), dir.RemoveAll(volumeUploads), dir.Mkdir(volumeUploads, 0o700)); err != nil {
		return nil, err
	}
	v.all = all
	for id, one := range v.all {
		one.held = &holding{ledger: l}
		l.add(Stored{Volumes: 1})
		if err := one.held.settle(dir, path.Join(volumeData, id)); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errMeasure) {
			return nil, fmt.Errorf("measure volume %q: %w", one.Name, err)
		}
	}
	return v, nil
}

// find returns the volume with an id or a name. mu is held.
func (v *volumes) find(id string) *volume {
	if one := v.all[id]; one != nil {
		return one
	}
	for _, one := range v.all {
		if one.Name == id {
			return one
		}
	}
	return nil
}

// named is find, with the lock.
func (v *volumes) named(id string) *volume {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.find(id)
}

// mounts returns the mounts of a new sandbox.
func (v *volumes) mounts(all []volumeMount) (mounts []runner.Mount, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, m := range all {
		one := v.find(m.Name)
		if one == nil {
			return nil, fmt.Errorf("%w: volume %q was not found", session.ErrInvalid, m.Name)
		}
		if !path.IsAbs(m.Path) || path.Clean(m.Path) != m.Path {
			return nil, fmt.Errorf("%w: volume %q: path %q: must be absolute and clean", session.ErrInvalid, m.Name, m.Path)
		}
		mounts = append(mounts, runner.Mount{Source: filepath.Join(v.dir.Name(), volumeData, one.ID), Target: m.Path, Whole: true})
	}
	return mounts, nil
}

func (v *volumes) volumeCreate(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Name string `json:"name"`
	}
	if err := body(r, &q); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := runner.CheckName(q.Name); err != nil {
		return fmt.Errorf("%w: name %q: %w", session.ErrInvalid, q.Name, err)
	}
	if v.find(q.Name) != nil {
		return refusal{http.StatusConflict, fmt.Sprintf("volume %q exists", q.Name)}
	}
	one := &volume{"vol" + newID(), q.Name, newToken(), &holding{ledger: v.ledger}}
	err := v.ledger.take(Stored{Volumes: 1})
	if err == nil {
		data := path.Join(volumeData, one.ID)
		if err = v.dir.Mkdir(data, 0o700); err == nil {
			err = v.dir.Chmod(data, 0o777) // every user of a sandbox may write; volumeData is closed to other users of the host
		}
		if err == nil {
			err = v.records.Put(one.ID, one)
		}
		if err != nil {
			v.dir.Remove(path.Join(volumeData, one.ID))
			v.ledger.add(Stored{Volumes: -1})
		}
	}
	if err != nil {
		return err
	}
	v.all[one.ID] = one
	return answer(w, http.StatusCreated, one)
}

func (v *volumes) volumeList(w http.ResponseWriter, r *http.Request) error {
	all := []volume{}
	v.mu.Lock()
	for id := range sortedKeys(v.all) {
		one := *v.all[id]
		one.Token = ""
		all = append(all, one)
	}
	v.mu.Unlock()
	return answer(w, http.StatusOK, all)
}

// volumeOf returns the volume that a call names.
func (v *volumes) volumeOf(r *http.Request) (*volume, error) {
	if one := v.named(r.PathValue("id")); one != nil {
		return one, nil
	}
	return nil, notFound("volume", r.PathValue("id"))
}

func (v *volumes) volumeGet(w http.ResponseWriter, r *http.Request) error {
	one, err := v.volumeOf(r)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, one)
}

// volumeRemove removes a volume that no sandbox mounts.
func (v *volumes) volumeRemove(w http.ResponseWriter, r *http.Request) error {
	one, err := v.volumeOf(r)
	if err != nil {
		return err
	}
	for _, e := range v.users() {
		rec := e.snap()
		if slices.ContainsFunc(rec.Volumes, func(m volumeMount) bool { return m.Name == one.Name || m.Name == one.ID }) {
			return refusal{http.StatusConflict, fmt.Sprintf("sandbox %s uses the volume", rec.ID)}
		}
	}
	if err := v.remove(one); err != nil {
		return err
	}
	return empty(w)
}

var errMounted = refusal{http.StatusConflict, "a sandbox uses the volume"}

// remove removes a volume, unless a sandbox mounts it.
func (v *volumes) remove(one *volume) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.all[one.ID] != one:
		return nil
	case one.held.mounted():
		return errMounted
	}
	if err := v.dir.RemoveAll(path.Join(volumeData, one.ID)); err != nil {
		return err
	}
	delete(v.all, one.ID)
	v.records.Remove(one.ID)
	one.held.end()
	v.ledger.add(Stored{Volumes: -1})
	return nil
}

// serve serves the content of volumes: /volumecontent/ID/dir, path or file. It needs the volume's token.
func (v *volumes) serve(w http.ResponseWriter, r *http.Request) {
	id, what, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/volumecontent/"), "/")
	v.mu.Lock()
	one := v.all[id]
	v.mu.Unlock()
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !v.access.Check(w, r, token, func() bool { return one != nil && server.Same(token, one.Token) }, func() {
		server.Refuse(w, http.StatusUnauthorized, "the token is not this volume's")
	}) {
		return
	}
	root, err := v.dir.OpenRoot(path.Join(volumeData, one.ID))
	if err == nil {
		defer root.Close()
		err = (&content{root, one.held, v.dir}).serve(w, r, what)
	}
	if err != nil {
		server.Refuse(w, fileStatus(err), err.Error())
	}
}
