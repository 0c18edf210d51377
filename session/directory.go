package session

import (
	"cmp"
	"encoding/json"
	"path/filepath"
	"strings"
	"time"

	"demesne/runner/jobs"
)

// Directory is a directory of its own below the output root, for a run that has several sandboxes and keeps files that
// none of them can reach. PruneOutputs leaves it alone until Close, or until this process ends.
type Directory struct {
	Path string // absolute, without symbolic links; only its owner can reach it
	out  *outDir
}

// NewDirectory makes a Directory. If name is empty, it chooses one.
func (s *Service) NewDirectory(name string) (*Directory, error) {
	o := &outDir{unmark: func() {}}
	if err := s.outputs.fresh(o, name); err != nil {
		o.undo()
		return nil, err
	}
	return &Directory{o.path, o}, nil
}

// Name returns the directory's name in the output root.
func (d *Directory) Name() string { return filepath.Base(d.Path) }

// Close marks the directory as no longer in use.
func (d *Directory) Close() { d.out.close() }

// Undo removes the directory if it is empty, and closes it.
func (d *Directory) Undo() { d.out.undo() }

// DirectoryOf returns the name of the Directory of a job. It follows from the job, so that every process that knows the
// job finds its files, even while it runs.
func (*Service) DirectoryOf(j *jobs.Job) string {
	_, id, _ := strings.Cut(j.ID, "-")
	return stamped(j.Created, id[:min(len(id), randomDigits)])
}

// ConversationOf returns the directory of the first run of an agent's conversation, which has the /out of all its runs. Each
// other job has a conversation of its own.
func (s *Service) ConversationOf(j *jobs.Job) string {
	var r struct{ Continues string }
	json.Unmarshal(j.Request, &r)
	return cmp.Or(r.Continues, s.DirectoryOf(j))
}

// randomDigits is the length of the random part of an output directory's name.
const randomDigits = 8

func stamped(t time.Time, random string) string {
	return t.UTC().Format("20060102-150405") + "-" + random
}
