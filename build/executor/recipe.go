package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"demesne/images"
	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/images/recipes"
	"demesne/internal/flock"
	"demesne/internal/text"
)

// useRecipe makes the files of a recipe the context. The arguments that were given decide the image's tag.
func (o *options) useRecipe(given []string) (err error) {
	if o.file != "" {
		return errors.New("--recipe and --file exclude each other")
	}
	var args []string
	for _, a := range given {
		if name, _, ok := strings.Cut(a, "="); !ok {
			if _, set := o.plan.Args[name]; !set {
				continue
			}
			a = name + "=" + o.plan.Args[name]
		}
		args = append(args, a)
	}
	ref, err := imageref.ParseRecipe(o.recipe, args...)
	if err != nil {
		return err
	}
	r, _, _ := ref.Recipe()
	o.recipe, o.names = r.Name, append(o.names, ref)
	all := registryArgs()
	maps.Copy(all, o.plan.Args)
	o.plan.Args = all
	return nil
}

// openRecipe writes the files of a recipe to a private directory, the context.
func (o *options) openRecipe() (file io.Reader, remove func(), err error) {
	r, _ := recipes.Find(o.recipe)
	dir, removeDir, err := tempDir()
	if err != nil {
		return nil, func() {}, err
	}
	o.dir = dir
	if err := os.CopyFS(dir, r.Files()); err != nil {
		return nil, removeDir, fmt.Errorf("write recipe: %w", err)
	}
	o.file = recipes.File
	f, err := os.Open(filepath.Join(o.dir, recipes.File))
	if err != nil {
		return nil, removeDir, err
	}
	return f, func() { f.Close(); removeDir() }, nil
}

// once builds the image of a recipe, unless the store has it. One process builds it, and others wait for its result.
func (b *builder) once(ctx context.Context) (oci.Digest, error) {
	dir := filepath.Join(b.images.Store.Dir(), "step-locks")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("lock recipe: %w", err)
	}
	path := filepath.Join(dir, "recipe-"+b.recipe)
	lock, err := flock.TryOpen(path, os.O_RDWR|os.O_CREATE, flock.Exclusive)
	if errors.Is(err, flock.ErrLocked) {
		b.show.note("another process builds this image: waiting")
		lock, err = flock.Open(ctx, path, os.O_RDWR|os.O_CREATE, flock.Exclusive)
	}
	if err != nil {
		return "", fmt.Errorf("lock recipe: %w", err)
	}
	defer lock.Close()
	if !b.noCache {
		img, err := b.images.Store.Lookup(b.names[len(b.names)-1])
		if err == nil && b.images.Store.Whole(img) == nil {
			return img.Digest, nil
		}
		if err != nil && !errors.Is(err, images.ErrNotFound) && !errors.Is(err, images.ErrCorrupt) {
			return "", err
		}
	}
	r, _ := recipes.Find(b.recipe)
	b.show.note(fmt.Sprintf("building %s%s, once: about %s on disk with its base, and some minutes", recipes.Namespace, r.Name, text.FormatBytes(r.Size)))
	return b.build(ctx)
}

// reporter writes events for package images.
type reporter struct{ to io.Writer }

func (r reporter) write(e events.Event) {
	if line, err := json.Marshal(e); err == nil {
		r.to.Write(append(line, '\n'))
	}
}

func (r reporter) notice(line string) {
	r.write(events.Event{Event: events.Notice, Why: text.SafeLine(line)})
}

// lifeline ends a build whose caller has closed its stdin or died.
func lifeline(ctx context.Context, stdin io.Reader) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		io.Copy(io.Discard, stdin)
		cancel(errors.New("the caller has ended"))
	}()
	return ctx
}
