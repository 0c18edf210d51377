package e2b

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	builder "demesne/build"
	"demesne/images"
	"demesne/internal/lazy"
	"demesne/server"
	"demesne/session"
)

// builds serves templates, and has the builds since the server's start.
type builds struct {
	opts    *Options
	store   *store
	try     func(context.Context, *build) error
	ctx     context.Context // ends with the server
	end     context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	all     map[string]*build
	uploads map[string]map[string]Stored // by template and hash
}

// build is one build of a template.
type build struct {
	id       string
	template *template
	tags     []string
	made     time.Time

	mu     sync.Mutex
	start  *startup // nil: its sandboxes start nothing
	status string   // waiting, building, ready or error
	reason buildReason
	logs   []buildLog
}

type buildLog struct {
	Timestamp time.Time `json:"timestamp"`
	Level     string    `json:"level"`
	Message   string    `json:"message"`
}

// buildReason says why a build failed.
type buildReason struct {
	Message string `json:"message"`
	Step    string `json:"step,omitempty"` // baseStep, or the number of a step from 1
}

// The steps of a build that finds the base, and that tries the start command.
const (
	baseStep  = "base"
	finalStep = "finalize"
)

// uploadDir holds the files of COPY steps, by template and hash.
const uploadDir = "uploads"

// Bounds of a build.
const (
	maxLogs   = 20_000
	keptBuild = 24 * time.Hour // longer than a build may take
)

var hashForm = lazy.Regexp{Expr: `^[0-9a-f]{64}$`}

// tagForm matches the valid tags of an image.
var tagForm = lazy.Regexp{Expr: `^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`}

// nameForm matches a valid template name that can also be part of an image's name.
var nameForm = lazy.Regexp{Expr: `^[a-z0-9][a-z0-9._/-]{0,62}$`}

func (s *builds) templateCreate(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Name     string   `json:"name"`
		Alias    string   `json:"alias"`
		Tags     []string `json:"tags"`
		CPUs     int      `json:"cpuCount"`
		MemoryMB int      `json:"memoryMB"`
	}
	if err := body(r, &q); err != nil {
		return err
	}
	name, tag, tagged := strings.Cut(cmp.Or(q.Name, q.Alias), ":")
	if !nameForm.Get().MatchString(name) {
		return fmt.Errorf("%w: name %q: must have lower case letters, digits and ._-", session.ErrInvalid, name)
	}
	tags := slices.Clone(q.Tags)
	if tagged {
		tags = append(tags, tag)
	}
	if len(tags) == 0 {
		tags = []string{defaultTag}
	}
	if err := checkTags(tags); err != nil {
		return err
	}
	s.store.mu.Lock()
	t := s.store.findTemplate(name)
	if t == nil {
		if err := s.store.ledger.take(Stored{Templates: 1}); err != nil {
			s.store.mu.Unlock()
			return err
		}
		t = &template{ID: newID(), Name: name, Created: time.Now().UTC()}
		s.store.templates[t.ID] = t
	}
	t.CPUs, t.MemoryMB, t.Updated = q.CPUs, q.MemoryMB, time.Now().UTC()
	err := s.store.templateRecords.Put(t.ID, t)
	s.store.mu.Unlock()
	if err != nil {
		return err
	}
	b := &build{id: newBuildID(), template: t, tags: tags, made: time.Now(), status: "waiting"}
	if !s.add(b) {
		return refusal{http.StatusTooManyRequests, fmt.Sprintf("at most %d builds of a namespace wait or run", server.MaxBuilds)}
	}
	return answer(w, http.StatusAccepted, map[string]any{
		"templateID": t.ID, "buildID": b.id, "tags": tags, "names": []string{name}, "aliases": []string{name}, "public": false,
	})
}

// add keeps a build. In place of one too many it forgets the oldest that has ended, or returns false.
func (s *builds) add(b *build) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]*build{}
	}
	var oldest *build
	for id, o := range s.all {
		if time.Since(o.made) > keptBuild {
			delete(s.all, id)
		} else if o.ended() && (oldest == nil || o.made.Before(oldest.made)) {
			oldest = o
		}
	}
	if len(s.all) >= server.MaxBuilds {
		if oldest == nil {
			return false
		}
		delete(s.all, oldest.id)
	}
	s.all[b.id] = b
	return true
}

// named returns the build that a call names.
func (s *builds) named(r *http.Request) (*build, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.all[r.PathValue("build")]; b != nil && b.template.ID == r.PathValue("id") {
		return b, nil
	}
	return nil, refusal{http.StatusNotFound, "build not found"}
}

func (b *build) ended() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status == "ready" || b.status == "error"
}

// step is one instruction of a build.
type step struct {
	Type  string   `json:"type"`
	Args  []string `json:"args"`
	Files string   `json:"filesHash"`
}

// recipe is the input of a build.
type recipe struct {
	FromImage    string         `json:"fromImage"`
	FromTemplate string         `json:"fromTemplate"`
	Registry     *registryLogin `json:"fromImageRegistry"`
	StartCmd     string         `json:"startCmd"`
	ReadyCmd     string         `json:"readyCmd"`
	Steps        []step         `json:"steps"`
}

// startup returns what the sandboxes of a build start with; nil: nothing.
func (q *recipe) startup() *startup {
	if q.StartCmd == "" {
		return nil
	}
	up := &startup{Cmd: q.StartCmd, Ready: q.ReadyCmd}
	for _, st := range q.Steps {
		switch {
		case st.Type == "USER" && len(st.Args) == 1:
			up.User = st.Args[0]
		case st.Type == "WORKDIR" && len(st.Args) == 1:
			up.Dir = st.Args[0]
		}
	}
	return up
}

func (s *builds) templateBuild(w http.ResponseWriter, r *http.Request) error {
	var q recipe
	b, err := s.named(r)
	if err != nil {
		return err
	}
	if err := body(r, &q); err != nil {
		return err
	}
	login, err := q.login()
	if err != nil {
		return err
	}
	b.mu.Lock()
	again := b.status != "waiting"
	if !again {
		b.status, b.start = "building", cmp.Or(q.startup(), s.store.startup(q.FromTemplate))
	}
	b.mu.Unlock()
	if again {
		return refusal{http.StatusConflict, "the build has begun"}
	}
	if err = s.store.pictures.begin(b, len(q.Steps), login != nil); err == nil {
		err = s.start(func() { s.run(b, q, login) })
	}
	if err != nil {
		s.ended(b, err, nil)
		return err
	}
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// start runs a build until the server ends.
func (s *builds) start(run func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ctx.Err(); err != nil {
		return fmt.Errorf("start build: %w", err)
	}
	s.running.Go(run)
	return nil
}

// close ends the builds.
func (s *builds) close() {
	s.mu.Lock()
	s.end()
	s.mu.Unlock()
	s.running.Wait()
}

// run builds, and names the image by the template's tags. login is for the base; nil: none.
func (s *builds) run(b *build, q recipe, login *images.Login) {
	ctx, cancel := context.WithTimeout(s.ctx, server.BuildTime)
	defer cancel()
	steps, err := s.image(ctx, b, q, login)
	if err == nil {
		err = s.try(ctx, b)
	}
	if err == nil {
		err = s.store.name(b)
	}
	s.store.pictures.end(b.id)
	s.ended(b, err, steps)
}

// ended says how a build ended.
func (s *builds) ended(b *build, err error, steps []string) {
	s.forgetUploads(b)
	if err != nil {
		b.Write([]byte(err.Error()))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.status = "ready"; err != nil {
		b.status, b.reason = "error", why(err, steps)
	}
}

// image makes the image of a build and counts it, in a directory that is removed afterwards. steps has the step of each line of
// the Containerfile.
func (s *builds) image(ctx context.Context, b *build, q recipe, login *images.Login) (steps []string, err error) {
	work := &workspace{dir: filepath.Join(s.opts.State, workDir, b.id), ledger: &s.store.ledger}
	if err := os.MkdirAll(work.dir, 0o700); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, work.close()) }()
	base, err := s.base(ctx, b, q, login)
	if err != nil {
		return nil, stepError{baseStep, err}
	}
	text, steps, err := s.containerfile(work, base, q.Steps)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(work.dir, ".Containerfile")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	var below map[string]int64 // of a private base nothing, so that all of it counts
	absent := false
	if login == nil {
		below, err = s.opts.Backend.Blobs(ctx, base)
		absent = err != nil
	}
	reserved, err := s.store.ledger.reserve()
	if err != nil {
		return nil, err
	}
	blobs := map[string]int64{}
	name := imageOf(b.template.ID, b.id)
	err = s.opts.Backend.Build(ctx, server.Build{Dir: work.dir, Containerfile: file, Name: name, MaxLayers: reserved}, b)
	if err == nil {
		blobs, err = s.opts.Backend.Blobs(ctx, name)
	}
	if err == nil && absent { // the build has pulled it
		below, err = s.opts.Backend.Blobs(ctx, base)
	}
	if err != nil {
		s.store.ledger.add(Stored{Bytes: -reserved})
		return steps, err
	}
	return steps, s.store.pictures.made(b.id, s.store.pictures.added(blobs, below), reserved)
}

// why returns why a build failed. steps has the step of each line of its Containerfile.
func why(err error, steps []string) buildReason {
	var at stepError
	var failed *builder.Failure
	switch {
	case errors.As(err, &at):
		return buildReason{err.Error(), at.step}
	case errors.As(err, &failed) && failed.Line >= 1 && failed.Line <= len(steps):
		return buildReason{failed.Reason, steps[failed.Line-1]}
	}
	return buildReason{Message: err.Error()}
}

// stepError is the error of a step.
type stepError struct {
	step string
	error
}

func (e stepError) Unwrap() error { return e.error }

// Write adds lines to the log of the build.
func (b *build) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for l := range bytes.Lines(text) {
		if l = bytes.TrimSpace(l); len(l) > 0 && len(b.logs) < maxLogs {
			b.logs = append(b.logs, buildLog{time.Now().UTC(), "info", strings.ToValidUTF8(string(l), "\ufffd")})
		}
	}
	return len(text), nil
}

func (s *builds) templateStatus(w http.ResponseWriter, r *http.Request) error {
	b, err := s.named(r)
	if err != nil {
		return err
	}
	from, _ := strconv.Atoi(r.URL.Query().Get("logsOffset"))
	b.mu.Lock()
	a := map[string]any{
		"templateID": b.template.ID, "buildID": b.id, "status": b.status, "logs": []string{},
		"logEntries": append([]buildLog{}, b.logs[min(max(from, 0), len(b.logs)):]...),
	}
	if b.status == "error" {
		a["reason"] = b.reason
	}
	b.mu.Unlock() // a client that does not read would stop the build
	return answer(w, http.StatusOK, a)
}

// base returns the image to build from. One with a login is pulled under a name of this build.
func (s *builds) base(ctx context.Context, b *build, q recipe, login *images.Login) (from string, err error) {
	if login != nil {
		from = privateOf(b.template.ID, b.id)
		return from, s.opts.Backend.PullPrivate(ctx, server.Private{Image: q.FromImage, Login: *login, As: from}, b)
	}
	from, own := q.FromImage, false
	if isBaseImage(from) || q.FromTemplate != "" && isBaseTemplate(q.FromTemplate) {
		from, own = s.opts.base(), true // a recipe's image is made here
	} else if q.FromTemplate != "" {
		s.store.mu.Lock()
		if t := s.store.findTemplate(q.FromTemplate); t != nil {
			from, own = t.image(q.FromTemplate), true
		}
		s.store.mu.Unlock()
	}
	if from == "" || strings.ContainsAny(from, " \t\r\n$") || !own && (strings.Contains(from, builtPrefix) || !s.opts.Backend.HasImage(ctx, from)) {
		return "", fmt.Errorf("%w: base %q: not an image", session.ErrInvalid, cmp.Or(from, q.FromTemplate))
	}
	return from, nil
}

// containerfile translates the steps, and puts the files of COPY steps into work. Every word is a JSON string or is checked,
// so that no step can add an instruction. lines has the step of each line.
func (s *builds) containerfile(work *workspace, from string, steps []step) (text string, lines []string, err error) {
	text, lines = "FROM "+from+"\n", []string{baseStep}
	user := `""` // root
	for i, st := range steps {
		number := strconv.Itoa(i + 1)
		more, err := s.instruction(work, i, st)
		if err != nil {
			return "", nil, stepError{number, fmt.Errorf("step %s: %w", number, err)}
		}
		switch {
		case st.Type == "USER":
			user = st.Args[0]
		case st.Type == "RUN" && strings.HasPrefix(more, "USER "):
			more += "\nUSER " + user // a RUN's user does not apply to the steps after it
		}
		text += more + "\n"
		lines = append(lines, slices.Repeat([]string{number}, strings.Count(more, "\n")+1)...)
	}
	return text, lines, nil
}

// errStep means that a step lacks arguments, or has impossible ones.
var errStep = fmt.Errorf("%w: its arguments are not understood", session.ErrInvalid)

func (s *builds) instruction(work *workspace, i int, st step) (string, error) {
	for _, a := range st.Args {
		if strings.ContainsRune(a, 0) {
			return "", errStep
		}
	}
	plain := func(word string) bool { return word != "" && !strings.ContainsAny(word, " \t\r\n$\"'\\#") }
	switch n := len(st.Args); {
	case st.Type == "RUN" && n >= 1:
		text := "RUN " + words("/bin/sh", "-c", st.Args[0])
		if n > 1 && st.Args[1] != "" {
			if !plain(st.Args[1]) {
				return "", errStep
			}
			return "USER " + st.Args[1] + "\n" + text, nil
		}
		return text, nil
	case st.Type == "ENV" && n > 0 && n%2 == 0:
		var lines []string
		for j := 0; j < n; j += 2 {
			if !plain(st.Args[j]) || strings.ContainsAny(st.Args[j+1], "\r\n") {
				return "", errStep
			}
			lines = append(lines, "ENV "+st.Args[j]+"='"+strings.NewReplacer(`\`, `\\`, `'`, `'\''`).Replace(st.Args[j+1])+"'")
		}
		return strings.Join(lines, "\n"), nil
	case st.Type == "WORKDIR" && n == 1 && plain(st.Args[0]), st.Type == "USER" && n == 1 && plain(st.Args[0]):
		return st.Type + " " + st.Args[0], nil
	case st.Type == "COPY" && n >= 2:
		return s.copyStep(work, i, st, plain)
	}
	return "", errStep
}

// copyStep unpacks the files of a COPY below a directory of its own.
func (s *builds) copyStep(work *workspace, i int, st step, plain func(string) bool) (string, error) {
	if !hashForm.Get().MatchString(st.Files) {
		return "", errStep
	}
	flags := ""
	for j, flag := range []string{"--chown=", "--chmod="} {
		if len(st.Args) > 2+j && st.Args[2+j] != "" {
			if !plain(st.Args[2+j]) {
				return "", errStep
			}
			flags += flag + st.Args[2+j] + " "
		}
	}
	f, err := s.openUpload(st.Files)
	if err != nil {
		return "", fmt.Errorf("%w: the files of COPY %q were not uploaded", session.ErrInvalid, st.Args[0])
	}
	defer f.Close()
	part := fmt.Sprintf("step%d", i)
	top, err := unpack(filepath.Join(work.dir, part), f, work.take)
	if err != nil {
		return "", fmt.Errorf("unpack: %w", err)
	}
	from := part + "/"
	if source := path.Clean(strings.TrimPrefix(st.Args[0], "/")); slices.Contains(top, strings.Split(source, "/")[0]) {
		from += beforePattern(source)
	}
	return "COPY " + flags + words(from, st.Args[1]), nil
}

// beforePattern returns the directory above the first pattern in a path, with a slash, or else the path. An upload has only
// the files that match.
func beforePattern(name string) string {
	i := strings.IndexAny(name, "*?[{")
	if i < 0 {
		return name
	}
	return name[:strings.LastIndexByte(name[:i], '/')+1]
}

// openUpload opens an upload by its hash, of whichever template.
func (s *builds) openUpload(hash string) (*os.File, error) {
	d, err := s.store.dir.Open(uploadDir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	ids, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if f, err := s.store.dir.Open(path.Join(uploadDir, id, hash)); err == nil {
			return f, nil
		}
	}
	return nil, os.ErrNotExist
}

// words formats a JSON array, which is the form of an instruction without a shell.
func words(w ...string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(w)
	return strings.TrimSpace(b.String())
}
