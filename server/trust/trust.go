// Package trust is demesne trust: it parses the demesne.toml of a project, shows the user what it asks for, and records the
// approval. See package project.
//
// Only a person approves: on the terminal, or with the sum of a content that the person knows. A command that a model runs on
// this machine cannot.
package trust

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/internal/cmdline"
	"demesne/internal/procself"
	"demesne/internal/text"
	"demesne/server/hostcmd"
	"demesne/session/project"
)

const failed = 125

// Main is the frontend trust of demesne-frontend. It has the arguments of demesne trust.
func Main() {
	unix.Umask(0o077)
	procself.OwnHome()
	if err := execute(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "demesne: trust:", text.SafeLine(err.Error()))
		if hint := text.HintOf(err); hint != "" {
			fmt.Fprintln(os.Stderr, "hint:", text.SafeLine(hint))
		}
		os.Exit(failed)
	}
}

func execute(args []string) error {
	var o project.Options
	line := o.Command()
	line.Program = "demesne"
	rest, err := line.Parse(args)
	switch {
	case errors.Is(err, cmdline.ErrHelp):
		fmt.Print(line.Help(80))
		return nil
	case err != nil:
		return err
	case len(rest) > 1:
		return fmt.Errorf("unexpected argument %q", rest[1])
	case os.Getenv(hostcmd.RequestVariable) != "":
		return errors.New("a command of the host cannot approve a project")
	}
	dir := "."
	if len(rest) == 1 {
		dir = rest[0]
	}
	f, err := project.Find(dir)
	if o.Revoke {
		if f != nil {
			dir = f.Dir
		}
		return project.Revoke(dir)
	}
	if err == nil && f == nil {
		err = fmt.Errorf("directory %q: has no %s", dir, project.FileName)
	}
	if err != nil {
		return err
	}
	return approve(f, o.Sum)
}

// approve shows what a file asks for, and records it if the user approves.
func approve(f *project.File, sum string) error {
	record, outside, err := parse(f)
	if err != nil {
		return fmt.Errorf("%q: %w", f.Path(), err)
	}
	known, changed, err := f.Approved()
	if err != nil {
		return err
	}
	shown := describe(f, record, outside, changed)
	switch {
	case known != nil:
		fmt.Print(shown + "it is approved\n")
		return nil
	case sum != "" && !strings.EqualFold(sum, f.Sum()):
		return fmt.Errorf("%q: has the sum %s", f.Path(), f.Sum())
	case sum != "":
		fmt.Print(shown)
	default:
		if err := ask(shown); err != nil {
			return text.Hinted(err, "demesne trust --sha256 %s %s approves this content without a terminal", f.Sum(), f.Dir)
		}
	}
	return f.Approve(record)
}

// describe returns what a file asks for, a flag a line. No text of the file reaches the terminal unescaped.
func describe(f *project.File, r project.Record, outside []string, changed bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", text.SafeLine(f.Path()))
	if changed {
		b.WriteString(" changed since you approved it. It now")
	}
	b.WriteString(" asks for:\n")
	for _, l := range []struct {
		verb  string
		flags []string
	}{{"run", r.Run}, {"agent", r.Agent}} {
		fmt.Fprintf(&b, "  demesne %s\n", l.verb)
		for _, flag := range l.flags {
			fmt.Fprintf(&b, "    %s\n", cmp.Or(text.SafeLine(flag), "-"))
		}
	}
	for _, path := range outside {
		fmt.Fprintf(&b, "OUTSIDE the project, it mounts %s\n", text.SafeLine(path))
	}
	return b.String()
}

// ask asks on the terminal.
func ask(shown string) error {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		fmt.Print(shown)
		return errors.New("there is no terminal to ask on")
	}
	defer tty.Close()
	unix.IoctlSetInt(int(tty.Fd()), unix.TCFLSH, unix.TCIFLUSH) // what was typed before the question does not answer it
	fmt.Fprintf(tty, "%sapprove it? [y/N] ", shown)
	line, err := bufio.NewReader(tty).ReadString('\n')
	if word := strings.ToLower(strings.TrimSpace(line)); err != nil || word != "y" && word != "yes" {
		return errors.New("not approved")
	}
	return nil
}
