// Command suite compiles the tests of every package once, runs them as root and as an ordinary user, and prints what they
// cost. make test calls it by integration/test.sh, which prepares the directories.
//
// Each source file of package integration is a part, as is every other package. A few parts run at once; the largest
// start first, so that the last ones to end are small. A part has no time limit: only the whole run has one, and the
// integration tests' own fixture finds a test that hangs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) > 3 && os.Args[1] == "keep" {
		exitIf(keep(os.Args[2], os.Args[3]))
		return
	}
	var s suite
	flag.StringVar(&s.stage, "stage", "", "`directory` that every user may read, with a copy of the sources in src")
	flag.StringVar(&s.login, "user", "", "ordinary `user` that runs the tests again after root")
	flag.StringVar(&s.pattern, "run", "", "`pattern` of the only tests to run")
	race := flag.String("race", "", "`packages` that run with the race detector, separated by spaces")
	flag.IntVar(&s.workers, "workers", 3*runtime.NumCPU(), "`number` of parts that run at once")
	bound := flag.Duration("timeout", time.Hour, "`bound` of the whole run")
	flag.Parse()
	s.race, s.packages = strings.Fields(*race), flag.Args()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, *bound, fmt.Errorf("the tests did not end within %v", *bound))
	defer cancel()
	exitIf(s.main(ctx))
}

func exitIf(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
		os.Exit(1)
	}
}

// suite is one run of the tests.
type suite struct {
	stage, login, pattern string
	packages, race        []string
	workers               int
}

func (s *suite) main(ctx context.Context) error {
	start := time.Now()
	parts, err := s.parts(ctx)
	if err != nil {
		return err
	}
	compiled := time.Since(start)
	results := s.run(ctx, parts)
	passed, failed := report(results)
	fmt.Printf("== %.0f s to compile the tests, %.0f s to run them\n", compiled.Seconds(), (time.Since(start) - compiled).Seconds())
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if passed+failed == 0 {
		return errors.New("no test matches")
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if slices.ContainsFunc(results, func(r result) bool { return r.err != nil }) {
		return errors.New("tests failed")
	}
	return nil
}
