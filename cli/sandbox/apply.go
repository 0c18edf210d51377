package sandbox

import (
	"cmp"
	"errors"
	"path/filepath"

	"demesne/cli/app"
	"demesne/cli/changes"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/session/cow"
)

// Changes returns the verbs about changes that are kept apart.
func Changes() []app.Verb {
	return []app.Verb{
		{
			Command: cmdline.Command{
				Name: "apply", Usage: []string{"[--force | --interactive] [ID] [PATH…]"}, Summary: "make the changes of a directory with mode cow",
				About: `Makes the changes in the directory that a sandbox had with mode cow (--workspace DIR:cow, --mount DIR:cow, --here=cow):
all of them, or the changes at and below each PATH. demesne diff lists them. ID may be the sandbox's. It can be left out
while one sandbox's changes are kept; a PATH that looks like an id needs ./ before it.

Each file is replaced in one step. A file that you changed after the start of the sandbox stays as it is, unless --force is
given. Files of caches, such as __pycache__, are replaced even without --force. Devices, fifos and sockets are never made, and files
get no setuid bit.

Some files would be executed or obeyed by programs of this machine: git hooks, .envrc, editor tasks. Such a change is
made only if PATH names it or a directory above it. A link that leads out of the directory is made, and named. Exits 1 if a change was not made.

With --interactive, demesne shows each change on the terminal and asks: y makes it, n keeps it for later, a makes it and
all that follow, q ends. If a text changed in several places, it asks about each. The answer a does not apply to files that
this machine would execute, links that lead out, and files that you changed meanwhile: answer y for each.`,
				Examples: []cmdline.Example{
					{Says: "try a command on a directory, look, and keep what it did", Line: "demesne run --here=cow -- make; demesne diff --patch; demesne apply"},
					{Says: "keep one file", Line: "demesne apply src/main.go"},
				},
			},
			New: func(a *app.App) app.Options { return &applyOptions{App: a} },
		},
		{
			Command: cmdline.Command{
				Name: "discard", Usage: []string{"[ID…]"}, Summary: "drop the changes of a directory with mode cow",
				About: `Removes changes that demesne diff lists. ID can be left out while one sandbox's changes are kept. The directories keep their
files. A persistent sandbox sees them from its next start on.`,
				Examples: []cmdline.Example{{Says: "drop changes", Line: "demesne discard 3f9a12bc"}},
			},
			New: func(a *app.App) app.Options { return &discardOptions{App: a} },
		},
	}
}

// hintedChanges adds a hint to an error about the choice of changes.
func hintedChanges(err error) error {
	if errors.Is(err, cow.ErrNone) || errors.Is(err, cow.ErrChoose) {
		err = text.Hinted(err, "demesne diff lists all changes that are kept apart")
	}
	return err
}

// openChanges returns the changes of an operand, or the only ones for "".
func openChanges(id string) (c *cow.Set, err error) {
	if id == "" {
		c, err = cow.Only()
	} else {
		c, err = cow.Find(id)
	}
	return c, hintedChanges(err)
}

// changesAnd returns the changes and paths that operands name. The id can be left out.
func changesAnd(args []string) (c *cow.Set, paths []string, err error) {
	if len(args) > 0 {
		c, err = cow.Find(args[0])
	}
	if id := len(args) > 0 && !errors.Is(err, cow.ErrNone); id {
		args = args[1:]
	} else if only, oerr := cow.Only(); oerr == nil && !(len(args) > 0 && cow.IsID(args[0])) {
		c, err = only, nil
	} else {
		err = cmp.Or(err, oerr)
	}
	if err != nil {
		return nil, nil, hintedChanges(err)
	}
	for _, p := range args {
		abs, err := realParent(p)
		if err != nil {
			return nil, nil, err
		}
		paths = append(paths, abs)
	}
	return c, paths, nil
}

type applyOptions struct {
	*app.App
	force, stepwise bool
}

func (o *applyOptions) Flags() cmdline.Flags {
	return cmdline.Flags{
		{Group: cmdline.GroupGeneral, Long: "force", Short: 'f', Set: cmdline.On(&o.force), Help: "replace files that you changed meanwhile"},
		{Group: cmdline.GroupGeneral, Long: "interactive", Short: 'i', Set: cmdline.On(&o.stepwise), Help: "show each change on the terminal, and ask"},
	}
}

func (o *applyOptions) Run(args []string) (int, error) {
	c, paths, err := changesAnd(args)
	if err != nil {
		return 0, err
	}
	if !o.stepwise {
		return changes.Apply(o.App, c, paths, cow.Directly(paths, o.force))
	}
	if o.force {
		return 0, errors.New("--interactive: cannot be combined with --force, as it asks about such files")
	}
	q, err := changes.OpenQuestions(o.App)
	if err != nil {
		return 0, err
	}
	defer q.Close()
	return changes.Apply(o.App, c, paths, q.Apply)
}

// realParent returns an absolute path as changes have it: without symbolic links, except in the last name.
func realParent(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	for dir, rest := filepath.Dir(abs), filepath.Base(abs); ; dir, rest = filepath.Dir(dir), filepath.Join(filepath.Base(dir), rest) {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			return filepath.Join(real, rest), nil
		}
		if dir == "/" {
			return abs, nil
		}
	}
}

type discardOptions struct {
	*app.App
}

func (o *discardOptions) Run(args []string) (int, error) {
	code := 0
	if len(args) == 0 {
		args = []string{""}
	}
	for _, id := range args {
		c, err := openChanges(id)
		if err == nil {
			err = c.Discard()
		}
		if err != nil {
			code = o.Report("discard", err)
		}
	}
	return code, nil
}
