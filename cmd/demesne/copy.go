package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"demesne/runner/client"
	"demesne/runner/tarball"
)

func copyCommand() command {
	return command{
		name: "cp", usage: []string{"SRC ID:DST", "ID:SRC DST", "ID:SRC ID:DST"}, summary: "copy files into a sandbox, out of it, or to another one",
		about: `Copies a file, or a directory with all that is in it. What is behind ID: is an absolute path in the
sandbox. Where DST ends in a slash the copy goes into it under its own name, otherwise that is what the copy
is called; a directory is added to one that is there. Copying out, it also goes into a DST that is a directory.
Links are copied in as links; they are not copied out, and neither are devices and set-user-ID bits.
Between two sandboxes it is as copying in.
A path of this machine that has a colon is written ./like:this.`,
		examples: []example{
			{"in", "demesne cp data.csv build:/tmp/"},
			{"out", "demesne cp build:/workspace/app ./app"},
			{"across", "demesne cp build:/workspace/app test:/tmp/"},
		},
		flags: noFlags, operand: aFile, run: cmdCopy,
	}
}

// splitInside takes ID:PATH apart; id is empty for a path of this machine.
func splitInside(arg string) (id, inside string) {
	id, inside, found := strings.Cut(arg, ":")
	if !found || !isName(id) || !strings.HasPrefix(inside, "/") {
		return "", ""
	}
	return id, inside
}

// notRelative refuses ID:PATH with a relative path, which would name a file of this machine that nobody means.
func notRelative(arg string) error {
	id, inside, found := strings.Cut(arg, ":")
	if !found || !isName(id) || strings.HasPrefix(inside, "/") {
		return nil
	}
	return hinted(fmt.Errorf("path %q: inside a sandbox a path is absolute", arg), "%s:/workspace/%s, or ./%s if it is a file of this machine", id, inside, arg)
}

func cmdCopy(a *app, _ *options, args []string) (int, error) {
	if len(args) != 2 {
		return 0, hinted(errors.New("needs two paths, one of them ID:/PATH"), "demesne cp data.csv build:/tmp/")
	}
	for _, arg := range args {
		if err := notRelative(arg); err != nil {
			return 0, err
		}
	}
	from, src := splitInside(args[0])
	to, dst := splitInside(args[1])
	if from == "" && to == "" {
		return 0, hinted(errors.New("one of the paths has to be ID:/PATH"), "demesne cp data.csv build:/tmp/")
	}
	sig := a.signalsWatched()
	eng, err := a.connect(sig.ctx, client.Options{})
	if err != nil {
		return 0, err
	}
	defer eng.Close()
	switch {
	case from == "":
		err = a.withBox(sig.ctx, eng, to, func(b *box) error { return copyIn(sig.ctx, b, args[0], dst) })
	case to == "":
		err = a.withBox(sig.ctx, eng, from, func(b *box) error { return a.copyOut(sig.ctx, b, src, args[1]) })
	default:
		err = a.withBox(sig.ctx, eng, from, func(b *box) error {
			return a.withBox(sig.ctx, eng, to, func(other *box) error { return copyAcross(sig.ctx, b, src, other, dst) })
		})
	}
	if code := sig.gaveUp(); err != nil && code != 0 {
		return code, nil
	}
	return 0, err
}

func (a *app) withBox(ctx context.Context, eng engine, id string, f func(*box) error) error {
	b, err := eng.Open(ctx, id)
	if err != nil {
		return err
	}
	a.tellRestarted("cp", b)
	return f(b)
}

func copyAcross(ctx context.Context, from *box, src string, to *box, dst string) error {
	name := path.Base(path.Clean(src))
	if name == "/" {
		return errors.New("will not copy /")
	}
	if strings.HasSuffix(dst, "/") {
		dst += name
	}
	return from.CopyTo(ctx, src, to.Sandbox, dst, tarball.Limits{})
}

// copyIn follows links to src here, once: the caller named it. What is copied to a path
// that ends in a slash keeps the name it was given by.
func copyIn(ctx context.Context, b *box, src, dst string) error {
	real, err := filepath.EvalSymlinks(src)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	if err != nil {
		return fmt.Errorf("source %q: %w", src, reason(err))
	}
	if strings.HasSuffix(dst, "/") && filepath.Base(src) != "." && filepath.Base(src) != ".." {
		dst += filepath.Base(src)
	}
	return b.CopyIn(ctx, real, dst)
}

// copyOut copies into a directory that is there, or makes dst.
func (a *app) copyOut(ctx context.Context, b *box, src, dst string) error {
	name := path.Base(path.Clean(src))
	if name == "/" {
		return hinted(errors.New("will not copy / out"), "demesne export writes an image's files; demesne cp takes one directory")
	}
	dir, as := filepath.Split(filepath.Clean(dst))
	if info, err := os.Stat(dst); err == nil && info.IsDir() {
		dir, as = dst, name
	} else if strings.HasSuffix(dst, "/") {
		return fmt.Errorf("destination %q: no such directory", dst)
	}
	root, err := os.OpenRoot(orElse(dir, "."))
	if err != nil {
		return fmt.Errorf("destination %q: %w", dst, reason(err))
	}
	defer root.Close()
	p, err := newPart(root)
	if err != nil {
		return fmt.Errorf("destination %q: %w", dst, reason(err))
	}
	defer p.remove()
	if err := a.unpack(ctx, b, src, p.dir); err != nil {
		return err
	}
	if err := p.deliver(name, as); err != nil {
		return fmt.Errorf("destination %q: %w", dst, reason(err))
	}
	return nil
}

// unpack tells of what stays behind: it would be missed.
func (a *app) unpack(ctx context.Context, b *box, src string, to *os.Root) error {
	did, err := b.CopyOut(ctx, src, to, tarball.Limits{})
	for _, name := range did.Skipped {
		a.say(fmt.Sprintf("cp: %q: not copied: is neither file nor directory", name))
	}
	return err
}
