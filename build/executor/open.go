package executor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"demesne/build/containerfile"
	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/session"
)

// Open reads the Containerfile, and prepares its build. The caller must close it. The error is an [ErrEpoch] or a
// [containerfile.Error] where it can be.
func Open(o Options) (_ *Builder, err error) {
	typed := strings.TrimPrefix(o.File, "-")
	b := &Builder{}
	defer func() {
		if err != nil {
			b.Close()
		}
	}()
	var file io.Reader
	file, b.remove, err = o.open()
	if err != nil {
		return nil, err
	}
	parsed, err := containerfile.Parse(filepath.Base(o.File), file)
	if err != nil {
		return nil, err
	}
	if b.plan, err = parsed.Plan(o.Plan); err != nil {
		return nil, err
	}
	if err := o.setEpoch(b.plan); err != nil {
		return nil, err
	}
	if err := sweepTemp(); err != nil {
		return nil, fmt.Errorf("remove what a killed build left: %w", err)
	}
	b.Options, b.sessions = o, session.New(session.Options{})
	if b.context, err = openContext(&o, typed); err != nil {
		return nil, err
	}
	if b.images, err = session.OpenImages(); err != nil {
		return nil, err
	}
	b.show = newShow(o.Log, o.Style, countOf(b.plan))
	b.show.events = o.Events
	b.noteUnused()
	return b, nil
}

// Close removes what only the build needed on the host.
func (b *Builder) Close() {
	b.remove()
	if b.sessions != nil {
		b.sessions.Close()
	}
}

// noteUnused names the arguments of the caller that no ARG declares.
func (b *Builder) noteUnused() {
	for _, name := range b.plan.Unused {
		if b.Recipe == nil || !b.Recipe.Optional(name) {
			b.show.note(fmt.Sprintf("build-arg %s: no ARG declares it", name))
		}
	}
}

// countOf returns how many instructions a build has. ONBUILD of a base may add some.
func countOf(p *containerfile.Plan) (n int) {
	for _, s := range p.Stages {
		n += len(s.Commands)
	}
	return n
}

// fileNames are the names of a Containerfile. The first that exists is used.
var fileNames = []string{"Containerfile", "Dockerfile", "dockerfile"}

// open opens the Containerfile, and makes the context of a recipe, or of a build that reads it from stdin. The caller must
// call close, also after an error.
func (o *Options) open() (file io.Reader, close func(), err error) {
	close = func() {}
	if o.Recipe != nil {
		return o.openRecipe()
	}
	if o.stdin = o.Dir == "-"; o.stdin {
		if o.File == "-" {
			return nil, close, errors.New("stdin cannot be both the context and the Containerfile")
		}
		if o.Dir, close, err = tempDirIn(contextRoot()); err != nil {
			return nil, func() {}, err
		}
		if file, err = readStdin(o.Stdin, o.Dir); file != nil || err != nil {
			o.File = "-"
			return file, close, err
		}
	} else if o.File == "-" {
		return o.Stdin, close, nil
	}
	found, err := o.openFile()
	if err != nil {
		return nil, close, err
	}
	remove := close
	return found, func() { found.Close(); remove() }, nil
}

// openRecipe writes the files of a recipe to a private directory, the context.
func (o *Options) openRecipe() (file io.Reader, close func(), err error) {
	dir, remove, err := tempDir()
	if err != nil {
		return nil, func() {}, err
	}
	f, err := o.Recipe.WriteTo(dir)
	if err != nil {
		return nil, remove, err
	}
	o.Dir, o.File = dir, filepath.Base(f.Name())
	return f, func() { f.Close(); remove() }, nil
}

// openFile opens the Containerfile by its name, or the context's.
func (o *Options) openFile() (*os.File, error) {
	inContext := func(name string) (*os.File, error) { return os.Open(filepath.Join(o.Dir, name)) }
	if o.stdin {
		inContext = func(name string) (*os.File, error) { return os.OpenInRoot(o.Dir, name) }
	}
	if o.File != "" {
		open := os.Open
		if o.stdin {
			open = inContext
		}
		file, err := open(o.File)
		if err != nil {
			return nil, fmt.Errorf("read %q: %w", o.File, fsutil.Reason(err))
		}
		return file, nil
	}
	for _, name := range fileNames {
		file, err := inContext(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		o.File = name
		if err != nil {
			return nil, fmt.Errorf("read %q: %w", name, fsutil.Reason(err))
		}
		return file, nil
	}
	return nil, text.Hinted(fmt.Errorf("context %q: no %s", o.Dir, strings.Join(fileNames[:2], " or ")), "-f names another file")
}

// epochArg is the variable with the time of the image and of its files, if --timestamp is not given: an argument of the build,
// this environment's, or the default of an ARG above the first FROM.
const epochArg = "SOURCE_DATE_EPOCH"

// setEpoch takes the time from that variable. An empty one means none.
func (o *Options) setEpoch(plan *containerfile.Plan) (err error) {
	if o.Epoch != nil {
		return nil
	}
	value, given := o.Plan.Args[epochArg]
	if !given {
		value, given = o.Env(epochArg)
	}
	if !given {
		value = plan.Global(epochArg)
	}
	if value != "" {
		o.Epoch, err = ParseEpoch(epochArg, value)
	}
	return err
}

// ErrEpoch means that a time is not a number of seconds since 1970.
var ErrEpoch = errors.New("not a number of seconds")

// ParseEpoch parses the value of a flag or variable that sets the time of an image.
func ParseEpoch(name, text string) (*time.Time, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return nil, fmt.Errorf("%s %q: %w", name, text, ErrEpoch)
	}
	at := time.Unix(n, 0).UTC()
	return &at, nil
}
