package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"demesne/cmd/internal/session/base"
	"demesne/cmd/internal/session/egress"
	"demesne/runner"
)

// given returns the properties that the command line asks of a keyed sandbox, and marks defaults.
func (r *root) given(spec runner.Spec) ([]runner.Argument, error) {
	egress := egress.None
	if e := spec.Egress; e != nil && e.Mode != "" {
		egress = e.Mode
	}
	spec.Egress = nil // its rules include this machine's mirrors: compare the options as typed instead
	all := append(runner.Arguments(spec),
		runner.Argument{Name: "image", Value: base.Word(r.ref), Default: r.o.image.Kind == ""},
		runner.Argument{Name: "egress", Value: egress, Default: r.o.network.mode == ""})
	if r.o.userName != "" {
		all = append(all, runner.Argument{Name: "user", Value: r.o.userName})
	}
	if r.o.out != "" {
		all = append(all, runner.Argument{Name: "output directory", Value: spec.Out})
	}
	more, err := r.o.network.given()
	return append(all, more...), err
}

func (n *network) given() (all []runner.Argument, err error) {
	add := func(name, value string) {
		if value != "" {
			all = append(all, runner.Argument{Name: name, Value: value})
		}
	}
	add("allowed domains", runner.SetWord(n.allow))
	add("denied domains", runner.SetWord(n.deny))
	for _, flag := range []struct {
		name string
		on   bool
	}{{"learn", n.learn}, {"ask", n.ask}, {"go proxy", n.goProxy}, {"open with inputs", n.openWithInputs}} {
		if flag.on {
			add(flag.name, "yes")
		}
	}
	if n.file != "" {
		word, err := fileWord(n.file)
		if err != nil {
			return nil, fmt.Errorf("egress-file %q: %w", n.file, reason(err))
		}
		add("egress file", word)
	}
	return all, nil
}

// fileWord returns a file's absolute path with a hash of its content.
func fileWord(path string) (string, error) {
	abs, err := filepath.Abs(path)
	text, rerr := os.ReadFile(path)
	return fmt.Sprintf("%s (sha256 %.12x)", abs, sha256.Sum256(text)), errors.Join(err, rerr)
}
