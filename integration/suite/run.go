package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// result is how a part ended.
type result struct {
	part
	tests []outcome
	err   error
	wall  time.Duration
	cpu   time.Duration // of its processes that were waited for
}

// outcome is how a test ended.
type outcome struct {
	name, status string
	wall         time.Duration
}

// run runs the parts and prints each one's result as it ends.
func (s *suite) run(ctx context.Context, parts []part) []result {
	queue, results := make(chan part, len(parts)), make(chan result)
	for _, p := range parts {
		queue <- p
	}
	close(queue)
	var workers sync.WaitGroup
	for range s.workers {
		workers.Go(func() {
			for p := range queue {
				if ctx.Err() == nil {
					results <- s.runPart(ctx, p)
				}
			}
		})
	}
	go func() {
		workers.Wait()
		close(results)
	}()
	var all []result
	for r := range results {
		all = append(all, r)
	}
	return all
}

// ended matches the line of a test or example at its end, but not a subtest's, which is indented.
var ended = regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): (\S+) \((\S+)s\)$`)

func (s *suite) runPart(ctx context.Context, p part) result {
	r := result{part: p}
	var out bytes.Buffer
	cmd, err := s.command(ctx, p)
	if err != nil {
		r.err = err
		return r
	}
	cmd.Stdout, cmd.Stderr = &out, &out
	start := time.Now()
	r.err = cmd.Run()
	r.wall = time.Since(start)
	if cmd.ProcessState == nil { // it did not start
		fmt.Fprintln(&out, r.err)
	} else if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		r.cpu = time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	for _, m := range ended.FindAllStringSubmatch(out.String(), -1) {
		seconds, _ := strconv.ParseFloat(m[3], 64)
		r.tests = append(r.tests, outcome{m[2], m[1], time.Duration(seconds * float64(time.Second))})
	}
	status := "ok  "
	if r.err != nil {
		status = "FAIL"
	}
	line := fmt.Sprintf("%s %-40s %6.1f s %6.1f s of CPU\n", status, p.name, r.wall.Seconds(), r.cpu.Seconds())
	if s.pattern != "" {
		line = out.String() + line
	} else if r.err != nil {
		line = failures(out.String()) + line
	}
	os.Stdout.WriteString(line)
	return r
}

// command returns the command of a part. It ends with the stacks of its goroutines if ctx ends first.
func (s *suite) command(ctx context.Context, p part) (*exec.Cmd, error) {
	args := append([]string{"-test.v", "-test.paniconexit0", "-test.timeout=0"}, p.args...)
	cmd := exec.CommandContext(ctx, p.file, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) }
	cmd.WaitDelay = 10 * time.Second
	var err error
	if cmd.Dir, err = filepath.Abs(p.pkg); err != nil {
		return nil, err
	}
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=10") // or each raced process waits for a second before it ends
	if p.half.login != "" {
		cmd.Dir = filepath.Join(s.stage, "src", p.pkg)
		err = become(cmd, p.half.login)
	}
	return cmd, err
}

// become makes cmd run as login, with the environment of a login.
func become(cmd *exec.Cmd, login string) error {
	u, err := user.Lookup(login)
	if err != nil {
		return err
	}
	ids, err := u.GroupIds()
	if err != nil {
		return err
	}
	var numbers []uint32
	for _, id := range append([]string{u.Uid, u.Gid}, ids...) {
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return err
		}
		numbers = append(numbers, uint32(n))
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: numbers[0], Gid: numbers[1], Groups: numbers[2:]}}
	kept := slices.DeleteFunc(cmd.Env, func(e string) bool { return !passed.MatchString(e) })
	cmd.Env = append(kept, "HOME="+u.HomeDir, "USER="+login, "LOGNAME="+login)
	if dir := os.Getenv("DEMESNE_TMP_MEMORY"); dir != "" {
		cmd.Env = append(cmd.Env, "TMPDIR="+dir)
	}
	return nil
}

// passed matches the variables of root that the ordinary user's tests see.
var passed = regexp.MustCompile(`^(PATH|CI|GORACE|DEMESNE_(BIN|ROUNDS|RECIPES|FIXTURES|AGENTS|TEST_TOOLS))=`)

// began matches the line with which a test begins, but not a subtest's.
var began = regexp.MustCompile(`(?m)^=== RUN   [^/\n]+$`)

// failures returns what the tests that did not pass printed, and what follows the last test, each with a bound.
func failures(out string) string {
	const longest = 32 << 10
	var kept strings.Builder
	from := 0
	keep := func(to int) {
		section := out[from:to]
		from = to
		if strings.Contains(section, "\n--- PASS: ") {
			return
		}
		if more := len(section) - longest; more > 0 {
			section = fmt.Sprintf("%s\n… %d bytes …\n%s", section[:longest/2], more, section[len(section)-longest/2:])
		}
		kept.WriteString(section)
	}
	for _, at := range began.FindAllStringIndex(out, -1) {
		keep(at[0])
	}
	keep(len(out))
	return kept.String()
}
