package code

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"demesne/internal/text"
	"demesne/kernels"
	"demesne/kernels/driver"
	"demesne/kernels/languages"
	"demesne/runner"
	"demesne/session"
)

// Runtime is a language that a root has.
type Runtime struct {
	Language, Program, Version string   // Program is empty if there are kernels only
	Kernels                    []string // names of kernelspecs; Driver for demesne's own
}

// versionTime bounds the question for the versions of all programs.
const versionTime = 20 * time.Second

// Runtimes makes a sandbox and returns the languages that its root has, in the order of the table. Languages of kernelspecs
// that the table does not have follow.
func Runtimes(ctx context.Context, s *session.Service, c session.CreateOptions, cb session.Callbacks) ([]Runtime, error) {
	c.Spec.Lifetime = runner.Attached
	sb, err := s.Create(ctx, c, cb)
	if err != nil {
		return nil, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTime)
		defer cancel()
		s.Remove(ctx, sb.ID)
	}()
	root, err := kernels.Look(ctx, sandbox{Sandbox: sb}, programs()...)
	if err != nil {
		return nil, err
	}
	all := runtimesOf(root)
	versions(ctx, s, sb.ID, all)
	return all, nil
}

// programs returns the names of the interpreters of all languages.
func programs() (names []string) {
	for _, l := range languages.All() {
		for _, run := range l.Run {
			if !strings.Contains(run[0], "/") && !slices.Contains(names, run[0]) {
				names = append(names, run[0])
			}
		}
	}
	return names
}

func runtimesOf(root *kernels.Root) (all []Runtime) {
	known := map[string]bool{}
	for _, l := range languages.All() {
		r := Runtime{Language: l.Name, Kernels: kernelsOf(root, l.Kernel)}
		known[strings.ToLower(l.Kernel)] = true
		for _, run := range l.Run {
			if p := root.Programs[run[0]]; p != "" && r.Program == "" {
				r.Program = p
			} else if strings.HasPrefix(run[0], "/") && r.Program == "" {
				r.Program = run[0]
			}
		}
		if driver.Argv(l.Name) != nil && root.Programs[l.Driver] != "" {
			r.Kernels = append(r.Kernels, Driver)
		}
		if r.Program != "" || len(r.Kernels) > 0 {
			all = append(all, r)
		}
	}
	for _, spec := range root.Specs {
		if name := strings.ToLower(spec.Language); name != "" && !known[name] {
			known[name] = true
			all = append(all, Runtime{Language: name, Kernels: kernelsOf(root, spec.Language)})
		}
	}
	return all
}

// kernelsOf returns the names of the kernelspecs of a language.
func kernelsOf(root *kernels.Root, language string) (names []string) {
	for _, spec := range root.Specs {
		if language != "" && strings.EqualFold(spec.Language, language) {
			names = append(names, spec.Name)
		}
	}
	return names
}

// versions asks each program for its version. A program that does not answer has none.
func versions(ctx context.Context, s *session.Service, id string, all []Runtime) {
	script := ""
	for i, r := range all {
		if option := "--version"; r.Program != "" && r.Program != "/bin/sh" {
			switch r.Language {
			case "go":
				option = "version"
			case "lua":
				option = "-v"
			}
			script += fmt.Sprintf("echo %d \"$(timeout 5 '%s' %s 2>&1 </dev/null | head -n 3 | tr '\\n' ' ')\"\n", i, strings.ReplaceAll(r.Program, "'", ""), option)
		}
	}
	cmd := runner.Command{Argv: []string{"/bin/sh", "-c", script}, Dir: "/", Timeout: versionTime}
	done, err := s.Exec(ctx, id, session.RunOptions{Command: cmd}, session.Callbacks{})
	if err != nil {
		return
	}
	for line := range strings.Lines(done.Stdout.Text) {
		var i int
		number, said, _ := strings.Cut(strings.TrimSpace(line), " ")
		if _, err := fmt.Sscan(number, &i); err == nil && i >= 0 && i < len(all) {
			all[i].Version = text.SafeLine(brief(said))
		}
	}
}
