package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// binary is the compiled tests of one package.
type binary struct {
	file string
	pkg  string // the package's directory, relative to the tree
}

// compile compiles the tests of packages, and keeps the programs below the stage. One go test compiles them all, and
// calls keep in place of each program: go test -c refuses two packages of the same name.
func (s *suite) compile(ctx context.Context, packages []string, flags ...string) ([]binary, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := s.directory("tests.")
	if err != nil {
		return nil, err
	}
	// make check vets every package. Without DWARF a link takes half the time.
	args := append([]string{"test", "-count=1", "-vet=off", "-ldflags=-w", "-exec", self + " keep " + dir}, flags...)
	cmd := exec.CommandContext(ctx, goTool(), append(args, packages...)...)
	cmd.Env = append(os.Environ(), "GOTMPDIR="+s.stage) // where keep can link the programs
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile tests: %w\n%s", err, out)
	}
	return binaries(dir)
}

// directory makes a directory below the stage, which every user may read.
func (s *suite) directory(prefix string) (string, error) {
	dir, err := os.MkdirTemp(s.stage, prefix)
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
}

func goTool() string {
	if g := os.Getenv("GO"); g != "" {
		return g
	}
	return "go"
}

// keep keeps the test program of the package in the working directory below dir, with the package's directory beside it.
func keep(dir, program string) error {
	wd, err := os.Getwd()
	if err != nil {
		return err
	}
	place, err := (&suite{stage: dir}).directory("")
	if err != nil {
		return err
	}
	if err := os.WriteFile(place+"/package", []byte(wd), 0o644); err != nil {
		return err
	}
	return os.Link(program, place+"/"+filepath.Base(program))
}

// binaries lists the programs that keep has kept below dir.
func binaries(dir string) ([]binary, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	programs, err := filepath.Glob(dir + "/*/*.test")
	if err != nil {
		return nil, err
	}
	var all []binary
	for _, p := range programs {
		wd, err := os.ReadFile(filepath.Dir(p) + "/package")
		if err != nil {
			return nil, err
		}
		pkg, ok := strings.CutPrefix(string(wd), root+"/")
		if !ok {
			return nil, fmt.Errorf("package %q is outside of %q", wd, root)
		}
		all = append(all, binary{p, pkg})
	}
	return all, nil
}
