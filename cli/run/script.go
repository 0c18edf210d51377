package run

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"demesne/cli/app"
	"demesne/cli/launch"
	"demesne/images/oci"
	"demesne/internal/cmdline"
	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/kernels/languages"
	"demesne/runner"
	inside "demesne/runner/files"
	"demesne/runner/ipc"
	"demesne/session"
)

func (o *codeOptions) languageFlag() cmdline.Flags {
	names := languages.Names(func(l languages.Language) bool { return l.Run != nil })
	return cmdline.Flags{{Group: app.GroupCommand, Long: "language", Arg: "NAME", Words: names, Set: o.setLanguage,
		Help: "run CMD as a file of this machine, or stdin if CMD is -, by the interpreter of this language (default: from the file's #! line or name)"}}
}

func (o *codeOptions) setLanguage(s string) error {
	l, ok := languages.Find(s)
	if !ok || l.Run == nil {
		return cmdline.OneOf(s, languages.Names(func(l languages.Language) bool { return l.Run != nil }))
	}
	o.language = l
	return nil
}

// script is a program of this machine in place of a command. It runs in the sandbox by an interpreter of the sandbox.
type script struct {
	name string // as the user wrote it
	real string // absolute, without symbolic links
	lang languages.Language

	executable bool     // has a permission to be executed
	line       []string // of a first line with #!
	only       bool     // --language: the first word cannot be a program of the sandbox
	temporary  string   // directory of a program from stdin

	shown  bool   // a directory that the sandbox shows has the file
	inside string // path in the sandbox

	content []byte // of one that is copied; nil: it is an input
}

// look finds the file without symbolic links, and reads its beginning.
func (s *script) look() error {
	abs, err := filepath.Abs(s.name)
	if err == nil {
		s.real, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return err
	}
	f, err := os.Open(s.real)
	if err != nil {
		return err
	}
	defer f.Close()
	head := make([]byte, 4<<10)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if !s.only {
		s.line = languages.Interpreter(head[:n])
		s.lang, _ = languages.OfScript(s.name, head[:n])
	}
	return nil
}

// close removes the file of a program from stdin.
func (s *script) close() {
	if s != nil && s.temporary != "" {
		os.RemoveAll(s.temporary)
	}
}

// locate finds the script in what a sandbox shows of this machine.
func (s *script) locate(spec runner.Spec, mounts []runner.Mount) {
	for _, in := range spec.Inputs {
		mounts = append(mounts, runner.Mount{Source: in.Path, Target: "/in/" + in.Name})
	}
	if abs, err := filepath.Abs(spec.Workspace); err == nil && spec.Workspace != "" {
		if real, err := filepath.EvalSymlinks(abs); err == nil {
			mounts = append(mounts, runner.Mount{Source: real, Target: "/workspace"})
		}
	}
	deepest := ""
	for _, m := range mounts {
		rel, err := filepath.Rel(m.Source, s.real)
		if err == nil && (rel == "." || filepath.IsLocal(rel)) && len(m.Source) >= len(deepest) {
			deepest, s.inside, s.shown = m.Source, path.Join(m.Target, rel), true
		}
	}
}

// handIn adds the script to the inputs of a new sandbox, unless that shows it.
func (s *script) handIn(spec *runner.Spec, o *launch.Options) error {
	if s.locate(*spec, o.Mounts.Shown()); s.shown {
		return nil
	}
	name := filepath.Base(s.real)
	if s.temporary == "" {
		name = filepath.Base(s.name)
	}
	for slices.ContainsFunc(spec.Inputs, func(in runner.Input) bool { return in.Name == name }) {
		name = "run-" + name
	}
	in, err := session.ParseInputs([]string{s.real + ":" + name}, nil)
	if err != nil {
		return err
	}
	spec.Inputs, s.inside = append(spec.Inputs, in...), "/in/"+name
	return nil
}

// copyIn copies the script into a sandbox that exists, which can have no further inputs, unless that shows it. The same
// program has the same path each time.
func (s *script) copyIn(ctx context.Context, sb *session.Sandbox) error {
	if s.shown {
		return nil
	}
	a, err := sb.Files(ctx, inside.Request{Write: &inside.Write{Path: s.inside, Content: s.content}})
	if err == nil && a.Error != "" {
		err = errors.New(a.Error)
	}
	if err != nil {
		return fmt.Errorf("script %q: copy it into the sandbox: %w", s.name, err)
	}
	return nil
}

// readIn reads the script, and chooses its path in a sandbox that exists.
func (s *script) readIn() error {
	if s.shown {
		return nil
	}
	f, err := os.Open(s.real)
	if err != nil {
		return fmt.Errorf("script %q: %w", s.name, fsutil.Reason(err))
	}
	defer f.Close()
	if s.content, err = io.ReadAll(io.LimitReader(f, app.MaxCode+1)); err != nil {
		return fmt.Errorf("script %q: %w", s.name, fsutil.Reason(err))
	}
	if len(s.content) > app.MaxCode {
		return fmt.Errorf("script %q: longer than %s, the most for a sandbox that exists", s.name, text.FormatBytes(app.MaxCode))
	}
	sum := sha256.Sum256(s.content)
	s.inside = "/tmp/demesne-" + hex.EncodeToString(sum[:6]) + "/" + filepath.Base(s.real)
	return nil
}

// command sets the command lines that run the script. argv is tried first: a program of that name in the sandbox wins over
// the script. c is the image's configuration.
func (s *script) command(cmd *runner.Command, c oci.Config, argv, args []string) {
	through := len(c.Entrypoint) > 0
	cmd.Argv, cmd.Else = argv, nil
	if through && s.shown && !s.only {
		return // the word is an argument of the entrypoint, as in docker run
	}
	if cmd.Else = s.lines(args[1:]); through || s.only {
		cmd.Argv = []string{"/in"} // a directory, which cannot be executed
	}
}

// lines returns the command lines that run the script, the best first. The kernel reads a line with #! in an executable
// file; an executable file without one may be a program of its own.
func (s *script) lines(args []string) (all [][]string) {
	whole := append([]string{s.inside}, args...)
	if s.executable && s.content == nil { // a copy is not executable
		all = append(all, whole)
	}
	if s.line != nil {
		return append(all, slices.Concat(s.line, whole))
	}
	for _, run := range s.lang.Run {
		all = append(all, slices.Concat(run, whole))
	}
	return all
}

// tooOld is the exit code of a node without TypeScript: "bad option".
const tooOld = 9

// tell hints at what runs TypeScript, if the root's node does not.
func (s *script) tell(c *app.Console, code int) {
	if s != nil && s.lang.Name == "typescript" && code == tooOld && s.line == nil {
		fmt.Fprintln(c.Stderr, "hint: node runs TypeScript from 22.6 on, and tsx, bun and deno do; --image node has a newer one")
	}
}

// failed explains a script without an interpreter.
func (s *script) failed(j *launch.Execution) error {
	if s.line != nil {
		err := ipc.Errorf(ipc.CodeCommandNotFound, "script %q: the sandbox has no %s, which the file's first line names", s.name, s.line[0])
		return text.Hinted(err, "demesne run --language %s %s uses another interpreter", cmp.Or(s.lang.Name, "NAME"), text.SafeLine(s.name))
	}
	var names []string
	for _, run := range s.lang.Run {
		names = append(names, run[0])
	}
	err := ipc.Errorf(ipc.CodeCommandNotFound, "script %q: the sandbox has no interpreter of %s; looked for %s", s.name, s.lang.Name, strings.Join(names, ", "))
	for _, name := range names {
		if file := j.OnMachine(name); file != "" && j.Options.Image.Kind == "" {
			return j.Shows(err, file)
		}
	}
	if s.lang.Image != "" {
		return text.Hinted(err, "the image %s has one: demesne run --image %s %s", s.lang.Image, s.lang.Image, text.SafeLine(s.name))
	}
	return text.Hinted(err, "demesne run --image NAME runs on an image that has one")
}
