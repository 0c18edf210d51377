package sandbox

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"demesne/cli/app"
	"demesne/cli/launch"
	"demesne/cli/stream"
	"demesne/internal/cmdline"
	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/runner/tarball"
	"demesne/session"
)

// Copy returns demesne cp.
func Copy() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "cp", Usage: []string{"SRC ID:DST", "ID:SRC DST", "ID:SRC ID:DST"},
			Summary: "copy files into, out of or between sandboxes",
			About: `Copies a file, or a directory with its contents. The path after ID: is absolute in the sandbox. If DST ends in a slash,
the copy keeps its name and goes into DST. Otherwise DST is the name of the copy. A directory is merged into an existing
one. Copying out also goes into DST if that is a directory. Write ./like:this for a path of this machine with a colon.

Symbolic links are copied in, and are skipped on the way out. Set-user-ID bits, named pipes, sockets and devices are
never copied; stderr names each skipped file. Modification times, and the holes of sparse files, are kept. Copying
between sandboxes follows the rules for copying in.

$DEMESNE_MAX_COPY_BYTES and $DEMESNE_MAX_COPY_FILES limit one copy. A copy that exceeds them leaves no files.`,
			Examples: []cmdline.Example{
				{Says: "copy in", Line: "demesne cp data.csv build:/tmp/"},
				{Says: "copy out", Line: "demesne cp build:/workspace/app ./app"},
				{Says: "copy between sandboxes", Line: "demesne cp build:/workspace/app test:/tmp/"},
			},
			Operand: cmdline.File,
		},
		New: func(a *app.App) app.Options { return &copyOptions{App: a} },
	}
}

// splitInside splits ID:PATH; id is empty for a path of this machine.
func splitInside(arg string) (id, inside string) {
	id, inside, found := strings.Cut(arg, ":")
	if !found || !runner.IsTarget(id) || !strings.HasPrefix(inside, "/") {
		return "", ""
	}
	return id, inside
}

// notRelative rejects ID:PATH with a relative path: it would name an unintended file of this machine.
func notRelative(arg string) error {
	id, inside, found := strings.Cut(arg, ":")
	if !found || !runner.IsTarget(id) || strings.HasPrefix(inside, "/") {
		return nil
	}
	return text.Hinted(fmt.Errorf("path %q: a path inside a sandbox must be absolute", arg), "%s:/workspace/%s, or ./%s for a file of this machine", id, inside, arg)
}

type copyOptions struct{ *app.App }

func (o *copyOptions) Run(args []string) (int, error) {
	if len(args) != 2 {
		return 0, text.Hinted(errors.New("needs two paths, one of them ID:/PATH"), "demesne cp data.csv build:/tmp/")
	}
	for _, arg := range args {
		if err := notRelative(arg); err != nil {
			return 0, err
		}
	}
	from, src := splitInside(args[0])
	to, dst := splitInside(args[1])
	if from == "" && to == "" {
		return 0, text.Hinted(errors.New("one of the paths must be ID:/PATH"), "demesne cp data.csv build:/tmp/")
	}
	if from != "" && to == "" && path.Base(path.Clean(src)) == "/" {
		return 0, text.Hinted(errors.New("will not copy / out"), "demesne export writes an image's files; demesne cp takes one directory")
	}
	source, target := session.Place{Sandbox: from, Path: src}, session.Place{Sandbox: to, Path: dst}
	if to == "" {
		target.Path = args[1]
	}
	if from == "" {
		var err error
		if source.Path, target.Path, err = hostSource(args[0], dst); err != nil {
			return 0, err
		}
	}
	sig := stream.SignalsWatched(o.Quit)
	s := o.Session(session.Options{})
	defer s.Close()
	did, err := s.Copy(sig.Ctx, source, target, (&launch.Options{App: o.App}).Callbacks(sig, &launch.Stages{}, nil))
	tellLeft(&o.Console, did)
	if code := sig.GaveUp(); err != nil && code != 0 {
		return code, nil
	}
	return 0, err
}

// hostSource resolves symbolic links in src once, because the caller named it. If dst ends in a slash, the copy keeps
// the name as given.
func hostSource(src, dst string) (string, string, error) {
	real, err := filepath.EvalSymlinks(src)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	if err != nil {
		return "", "", fmt.Errorf("source %q: %w", src, fsutil.Reason(err))
	}
	if strings.HasSuffix(dst, "/") && filepath.Base(src) != "." && filepath.Base(src) != ".." {
		dst += filepath.Base(src)
	}
	return real, dst, nil
}

// tellLeft lists the entries that were not copied.
func tellLeft(c *app.Console, did tarball.Report) {
	for _, l := range did.Left {
		c.Say(fmt.Sprintf("cp: %q: skipped: %s", l.Path, l.Kind))
	}
	if more := did.LeftAll - len(did.Left); more > 0 {
		c.Say(fmt.Sprintf("cp: %d more were skipped", more))
	}
}
