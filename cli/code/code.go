// Package code has the verb code, which checks the syntax of files in a sandbox without executing them: see package
// kernels/syntax.
package code

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"demesne/cli/app"
	"demesne/cli/launch"
	"demesne/cli/stream"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/kernels/languages"
	"demesne/kernels/syntax"
	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/session"
)

// exitProblem is the exit code of a check that found something.
const exitProblem = 1

// checkable keeps the languages whose syntax can be checked.
func checkable(l languages.Language) bool { return l.Check != nil }

// Verb returns demesne code.
func Verb() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "code", Usage: []string{"validate [flags] FILE…", "validate --language NAME [flags] -"}, Summary: "check the syntax of code without running it",
			About: `validate checks the syntax of each FILE by the parser of its language, and does not execute it. The parser runs in a
new sandbox without a network, and gets the code on stdin. FILE - is stdin. Its language is given by --language, else by
the interpreter in its #! line, else of its name. The languages are ` + strings.Join(languages.Names(checkable), ", ") + `. Perl has no such check: perl -c executes BEGIN blocks.

For each error it prints FILE:LINE:COLUMN: MESSAGE. Some parsers report no column, and most stop at the first error.

With --imports it prints the imports that correct Python or JavaScript lacks, and with --patterns lines such as eval or rm -r /, which
deserve a look. These change no exit code. The patterns are a help for a reader and not a security boundary.

It exits 1 if a file has an error, 2 if a file cannot be read or a flag is wrong, and 125 or 127 if a parser failed or is
missing.`,
			Examples: []cmdline.Example{
				{Says: "check files", Line: "demesne code validate app.py lib/*.js"},
				{Says: "check what a program writes, by the parser of an image", Line: "make-script | demesne code validate --language ruby --image ruby:3 -"},
				{Says: "get the errors as JSON", Line: "demesne code validate --json app.py"},
				{Says: "get a script with the imports that it lacks", Line: "demesne code validate --imports --json app.py | jq -r '.files[0].fixed'"},
			},
			Operand: cmdline.File, Raw: true,
		},
		New: func(a *app.App) app.Options { return &validateOptions{Options: launch.Options{App: a}} },
	}
}

type validateOptions struct {
	launch.Options
	language languages.Language // of --language; zero: the file tells
	imports  bool
	patterns bool
}

func (o *validateOptions) Flags() cmdline.Flags {
	return slices.Concat(cmdline.Flags{{Group: app.GroupCommand, Long: "language", Arg: "NAME", Words: languages.Names(checkable), Set: o.setChecked,
		Help: "language of all files (default: from each file's #! line or name)"},
		{Group: app.GroupCommand, Long: "imports", Set: cmdline.On(&o.imports), Help: "print the imports that Python or JavaScript lacks; with --json also the code that has them"},
		{Group: app.GroupCommand, Long: "patterns", Set: cmdline.On(&o.patterns), Help: "print lines that deserve a look"}},
		o.RootFlags(), app.JSONFlag(&o.JSON))
}

func (o *validateOptions) setChecked(s string) error {
	l, ok := languages.Find(s)
	if !ok {
		return cmdline.OneOf(s, languages.Names(checkable))
	}
	o.language = l
	return nil
}

// validated is the result for one file, as --json prints it.
type validated struct {
	File     string              `json:"file"`
	Language string              `json:"language,omitempty"`
	Valid    bool                `json:"valid"`
	Problems []languages.Problem `json:"problems"`
	Patterns []languages.Problem `json:"patterns,omitempty"`
	Imports  []string            `json:"imports,omitempty"` // that are missing
	Fixed    string              `json:"fixed,omitempty"`   // the code with them
	Error    *ipc.Error          `json:"error,omitempty"`   // why it was not checked
}

func (o *validateOptions) Run(args []string) (int, error) {
	c := Verb()
	line := c.With(o.Flags())
	line.Raw = false
	rest, err := line.Parse(args)
	switch {
	case errors.Is(err, cmdline.ErrHelp):
		return 0, err
	case err == nil && (len(rest) < 2 || rest[0] != "validate"):
		err = text.Hinted(errors.New("needs the word validate and a file"), "demesne code validate FILE")
	}
	if err != nil {
		o.Report(o.Verb, err)
		return app.ExitUsage, nil
	}
	v := validation{o: o}
	return v.all(rest[1:])
}

// validation checks files.
type validation struct {
	o      *validateOptions
	sig    *stream.Signals
	failed int // exit code of the first failure of the machinery
	wrong  bool
}

func (v *validation) all(names []string) (int, error) {
	r, err := v.o.NewRoot()
	if err != nil {
		return 0, err
	}
	s := v.o.Session(nil)
	defer s.Close()
	v.sig = stream.SignalsWatched(v.o.Quit)
	results, valid := []validated{}, true
	for _, name := range names {
		one := v.file(s, r, name)
		if code := v.sig.GaveUp(); code != 0 {
			return code, nil
		}
		valid = valid && one.Valid
		results = append(results, one)
	}
	if v.o.JSON {
		if code, err := v.o.PrintJSON(map[string]any{"valid": valid, "files": results}); code != 0 || err != nil {
			return code, err
		}
	}
	switch {
	case v.wrong:
		return app.ExitUsage, nil
	case v.failed != 0:
		return v.failed, nil
	case !valid:
		return exitProblem, nil
	}
	return 0, nil
}

// file checks one file, and prints its errors unless --json prints them.
func (v *validation) file(s *session.Service, r *launch.Root, name string) validated {
	one := validated{File: name, Problems: []languages.Problem{}}
	code, err := v.o.ReadCode(name)
	l := v.o.language
	if err == nil && l.Name == "" {
		var known bool
		if l, known = languages.OfScript(name, code); !known {
			err = text.Hinted(errors.New("its name does not tell the language"), "--language NAME tells it: %s", strings.Join(languages.Names(checkable), ", "))
		}
	}
	if err != nil {
		v.wrong = true
		return v.unchecked(one, err)
	}
	one.Language = l.Name
	p := r.Progress()
	check := syntax.Checker{Service: s, Create: r.CreateOptions(runner.Spec{}), Callbacks: session.Callbacks{Image: p.Take}}
	problems, err := check.Check(v.sig.Ctx, l, string(code))
	if err == nil && len(problems) == 0 && v.o.imports && syntax.Completes(l) {
		one.Fixed, one.Imports, err = check.FixImports(v.sig.Ctx, l, string(code))
	}
	p.Done()
	if err != nil && v.sig.GaveUp() == 0 {
		err = lacksParser(err, l)
		if v.wrong = v.wrong || l.Check == nil; v.failed == 0 {
			v.failed = app.ExitCode(err)
		}
		return v.unchecked(one, err)
	}
	one.Valid = err == nil && len(problems) == 0
	one.Problems = append(one.Problems, problems...)
	if v.o.patterns {
		one.Patterns = syntax.Patterns(l, string(code))
	}
	if !v.o.JSON {
		v.print(one)
	}
	return one
}

// print prints what was found in a file.
func (v *validation) print(one validated) {
	line := func(format string, what any) { v.o.Print(text.SafeLine(fmt.Sprintf(format, one.File, what)) + "\n") }
	for _, p := range one.Problems {
		line("%s:%s", p)
	}
	for _, p := range one.Patterns {
		line("%s:%s (pattern)", p)
	}
	for _, missing := range one.Imports {
		line("%s: missing: %s", missing)
	}
}

// unchecked reports why a file was not checked.
func (v *validation) unchecked(one validated, err error) validated {
	one.Error = app.Wire(err)
	v.o.Report(v.o.Verb, fmt.Errorf("validate %q: %w", one.File, err))
	return one
}

// lacksParser explains a root without the parser of a language.
func lacksParser(err error, l languages.Language) error {
	var e *ipc.Error
	if !errors.As(err, &e) || e.Code != ipc.CodeCommandNotFound {
		return err
	}
	err = ipc.Errorf(e.Code, "the sandbox has no %s, which checks %s", l.Check[0], l.Name)
	if l.Image == "" {
		return text.Hinted(err, "give an image that contains it: --image NAME")
	}
	return text.Hinted(err, "--image %s contains it", l.Image)
}
