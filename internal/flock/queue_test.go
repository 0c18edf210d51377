package flock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// dirVar makes the test binary one of the waiting processes.
const dirVar = "DEMESNE_TEST_TURNS"

func TestMain(m *testing.M) {
	dir := os.Getenv(dirVar)
	if dir == "" {
		os.Exit(m.Run())
	}
	var t *Turn
	var err error
	if os.Getenv("ADOPT") != "" {
		t, err = AdoptTurn(dir, "x", "handed", os.NewFile(3, "turn"))
	} else {
		t, err = JoinQueue(dir, "x", fmt.Sprint("p", os.Getpid()))
	}
	if err == nil {
		fmt.Println("joined")
		err = t.Wait(context.Background())
	}
	fmt.Println("has it", err)
	os.Stdin.Read(make([]byte, 1))
	os.Exit(0) // without Leave
}

func join(t *testing.T, dir, name string) *Turn {
	t.Helper()
	n, err := JoinQueue(dir, name, "me")
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestOrder checks that turns come in the order in which they were joined.
func TestOrder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "turns")
	var line []*Turn
	for range 50 {
		line = append(line, join(t, dir, "x"))
	}
	if n, err := CountTurns(dir, "x"); n != 50 || err != nil {
		t.Errorf("%d in line: %v", n, err)
	}
	other := join(t, dir, "y")
	if err := other.Wait(t.Context()); err != nil { // another queue
		t.Error(err)
	}
	var mu sync.Mutex
	var served []uint64
	var wg sync.WaitGroup
	for _, turn := range line {
		wg.Go(func() {
			if err := turn.Wait(t.Context()); err != nil {
				t.Error(err)
			}
			mu.Lock()
			served = append(served, turn.number)
			mu.Unlock()
			turn.Leave()
			turn.Leave()
		})
	}
	wg.Wait()
	for i, n := range served {
		if n != uint64(i+1) {
			t.Fatalf("served %v", served)
		}
	}
	if n, _ := CountTurns(dir, "x"); n != 0 {
		t.Errorf("%d left in line", n)
	}
}

// TestGivesUp checks that a turn whose Wait was cancelled blocks others only until it leaves the queue.
func TestGivesUp(t *testing.T) {
	dir := t.TempDir()
	first, second, third := join(t, dir, "x"), join(t, dir, "x"), join(t, dir, "x")
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	time.AfterFunc(10*time.Millisecond, func() { cancel(enough) })
	if err := second.Wait(ctx); !errors.Is(err, enough) {
		t.Errorf("%v", err)
	}
	second.Leave()
	done := make(chan error, 1)
	go func() { done <- third.Wait(t.Context()) }()
	select {
	case err := <-done:
		t.Errorf("before the first has left: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	first.Leave()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestKilled checks that a process killed while it waits, or while it has its turn, blocks no other.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	first, waits := process(t, dir, nil), (*exec.Cmd)(nil)
	first.says("joined", "has it <nil>")
	second := process(t, dir, nil)
	second.says("joined")
	waits = second.Cmd
	last := join(t, dir, "x")
	waits.Process.Kill()
	waits.Wait()
	done := make(chan error, 1)
	go func() { done <- last.Wait(t.Context()) }()
	select {
	case err := <-done:
		t.Errorf("before the first was killed: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	first.Process.Kill()
	if err := <-done; err != nil {
		t.Error(err)
	}
	first.Wait()
	if n, _ := CountTurns(dir, "x"); n != 1 {
		t.Errorf("%d in line", n)
	}
}

// TestAdopt checks that a turn handed over belongs to the process that adopts it.
func TestAdopt(t *testing.T) {
	dir := t.TempDir()
	first := join(t, dir, "x")
	handed, err := JoinQueue(dir, "x", "handed")
	if err != nil {
		t.Fatal(err)
	}
	p := process(t, dir, handed.File())
	handed.fifo.Close()
	last := join(t, dir, "x")
	p.says("joined")
	first.Leave()
	p.says("has it <nil>")
	done := make(chan error, 1)
	go func() { done <- last.Wait(t.Context()) }()
	select {
	case err := <-done:
		t.Errorf("before who adopted it ended: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	p.Process.Kill()
	if err := <-done; err != nil {
		t.Error(err)
	}
	p.Wait()
	if _, err := AdoptTurn(dir, "x", "nobody", nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestJoinRefuses(t *testing.T) {
	for _, word := range []string{"", "a.b", "../a", "a/b"} {
		if _, err := JoinQueue(t.TempDir(), word, "w"); err == nil {
			t.Errorf("name %q", word)
		}
		if _, err := JoinQueue(t.TempDir(), "n", word); err == nil {
			t.Errorf("who %q", word)
		}
	}
	if n, err := CountTurns(filepath.Join(t.TempDir(), "none"), "x"); n != 0 || err != nil {
		t.Errorf("%d %v", n, err)
	}
}

type proc struct {
	*exec.Cmd
	t   *testing.T
	out *bufio.Scanner
}

// process starts a child that joins the queue, or adopts a turn.
func process(t *testing.T, dir string, turn *os.File) *proc {
	t.Helper()
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), dirVar+"="+dir)
	if turn != nil {
		c.ExtraFiles, c.Env = []*os.File{turn}, append(c.Env, "ADOPT=1")
	}
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); c.Process.Kill(); c.Wait() })
	return &proc{c, t, bufio.NewScanner(out)}
}

func (p *proc) says(lines ...string) {
	p.t.Helper()
	for _, want := range lines {
		if !p.out.Scan() || p.out.Text() != want {
			p.t.Fatalf("said %q, want %q", p.out.Text(), want)
		}
	}
}
