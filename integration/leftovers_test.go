package integration

import (
	"bytes"
	"fmt"
	"io"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// rounds is how often each of the victims dies, 200 times in all at least; make chaos asks for more.
func rounds() int {
	if n, err := strconv.Atoi(os.Getenv("DEMESNE_ROUNDS")); err == nil && n > 0 {
		return n
	}
	return 30
}

// busy is a workload that has everything a sandbox could leave: daemons, files in
// every place, pipes and a listener.
const busy = `setsid sleep 3222 & (sleep 3222 & sleep 3222 &) ; mkfifo /tmp/p; echo x > /out/f; echo y > /workspace/g
	while :; do echo z > /tmp/h; sleep 0.01; done`

// victims are found among what descends from the test; nil kills the caller itself.
var victims = []struct {
	name string
	find func(caller int) []int
	sig  syscall.Signal
}{
	{"caller", nil, syscall.SIGKILL},
	{"caller by Ctrl-C", nil, syscall.SIGINT},
	{"caller by TERM", nil, syscall.SIGTERM},
	{"runner", func(int) []int { return runners(true) }, syscall.SIGKILL},
	{"reaper, then runner", func(int) []int { return append(runners(false), runners(true)...) }, syscall.SIGKILL},
	{"init", func(int) []int { return named("demesne-init") }, syscall.SIGKILL},
	{"everything", func(caller int) []int {
		return append(append([]int{caller}, runners(true)...), named("demesne-init")...)
	}, syscall.SIGKILL},
}

// runners lists the processes that serve, or those that clean up after them.
func runners(servers bool) (pids []int) {
	if servers {
		return named("demesne-runner")
	}
	return named("demesne-reaper")
}

func named(name string) (pids []int) {
	for _, p := range descendants() {
		if strings.HasSuffix(p.name, name) { // ".demesne-init" inside, where it is a hidden file of /dev
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// P20 and the leftovers: whoever is killed, whenever, the kernel and the reaper
// leave nothing, and the next run works.
func TestLeftoversKilled(t *testing.T) {
	for _, v := range victims {
		t.Run(v.name, func(t *testing.T) {
			rng := rand.New(rand.NewSource(int64(len(v.name))))
			for round := range rounds() {
				delay := time.Duration(rng.Intn(60)) * time.Millisecond
				if !t.Run("", func(t *testing.T) { killRound(t, v.find, v.sig, delay, round%2 == 1) }) {
					t.Fatalf("round %d, after %v", round, delay)
				}
			}
			newBox(t).sh("true")
		})
	}
}

func killRound(t *testing.T, find func(int) []int, sig syscall.Signal, delay time.Duration, linger bool) {
	b := newBox(t)
	if linger {
		b.lingers("1h")
	}
	cmd := b.command("demesne", "run", "-i", "--", "sh", "-c", busy)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(delay)
	// A victim that is not there yet is waited for, and one that the caller could
	// replace (it was not connected yet) is killed again.
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for ; ; time.Sleep(5 * time.Millisecond) {
			pids := []int{cmd.Process.Pid}
			if find != nil {
				pids = find(cmd.Process.Pid)
			}
			for _, pid := range pids {
				syscall.Kill(pid, sig)
			}
			select {
			case <-stop:
				return
			default:
			}
			if find == nil {
				return
			}
		}
	}()
	ended(t, cmd)
	close(stop)
	<-stopped
	in.Close()
	if linger {
		if r := b.demesne("gc", "--runner"); r.code != 0 {
			t.Errorf("gc --runner: %+v", r)
		}
	}
	b.next(t)
}

// next waits for the end of every process. A caller or runner killed in the milliseconds before the runner's reaper
// was there, and the reaper itself, leave empty files and control groups: those are the next run's, which takes
// them along.
func (b *box) next(t *testing.T) {
	t.Helper()
	eventually(t, "every process to be gone", func() bool { return len(descendants()) == 0 })
	if len(b.droppings())+len(b.outside()) > 0 {
		b.lingers("0").sh("true")
	}
}

// ended waits for the caller: it must notice, whoever died.
func ended(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	done := make(chan struct{})
	go func() { cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("the caller hangs")
		cmd.Process.Kill()
		<-done
	}
}

// After success and after failure there is nothing either; a box's own check says so.
func TestLeftoversNone(t *testing.T) {
	for _, args := range [][]string{
		{"run", "--", "true"}, {"run", "--", "sh", "-c", busy[:strings.Index(busy, "\n")]}, {"run", "--", "false"}, {"run", "--", "nosuch"},
		{"run", "--timeout", "200ms", "--", "sh", "-c", busy}, {"run", "--workdir", "/nosuch", "--", "true"}, {"run", "--user", "4000000", "--", "true"},
		{"check"}, {"ls"}, {"inspect", "nosuch"},
	} {
		t.Run(strings.Join(args[:min(3, len(args))], " "), func(t *testing.T) { newBox(t).demesne(args...) })
		t.Run(strings.Join(args[:min(3, len(args))], " ")+", lingering", func(t *testing.T) {
			b := newBox(t).lingers("1h")
			b.demesne(args...)
			b.demesne("gc", "--runner")
		})
	}
}

// A check that is killed, or whose runner is, at any moment: the box's own check says what stays of the trees that
// it tries overlayfs on.
func TestLeftoversCheckKilled(t *testing.T) {
	b := newBox(t)
	rng := rand.New(rand.NewSource(1))
	for round := range max(16, rounds()/8) {
		cmd := b.command("demesne", "check")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rng.Intn(120)) * time.Millisecond)
		victims := []int{cmd.Process.Pid}
		if round%2 == 1 {
			victims = runners(true)
		}
		for _, pid := range victims {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		ended(t, cmd)
	}
	b.next(t)
}

// P20: what a killed caller or runner means for the exit code of the one that is left.
func TestEscapeP20SupervisorDies(t *testing.T) {
	b := newBox(t)
	for _, who := range []string{"runner", "init"} {
		cmd, _ := b.started(nil, "setsid sleep 3222 & echo ready; sleep 3222")
		pids := runners(true)
		if who == "init" {
			pids = named("demesne-init")
		}
		if len(pids) == 0 {
			t.Fatalf("no %s", who)
		}
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		ended(t, cmd)
		if code := cmd.ProcessState.ExitCode(); code != 125 {
			t.Errorf("%s killed: exit %d, want 125", who, code)
		}
		eventually(t, "the sandbox to be gone", func() bool { return len(descendants()) == 0 })
	}
	b.sh("true")
}

// P18: a state file that names the process of somebody else, with everything else
// right, ends nobody.
func TestEscapeP18StalePID(t *testing.T) {
	b := newBox(t)
	id := strings.TrimSpace(b.demesne("create").stdout)
	if id == "" {
		t.Fatal("create says nothing")
	}
	inits := named("demesne-init")
	for _, pid := range append(append(runners(false), runners(true)...), inits...) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	eventually(t, "all of it to be gone", func() bool { return len(descendants()) == 0 })
	innocent := exec.Command("/bin/sleep", "60")
	if err := innocent.Start(); err != nil {
		t.Fatal(err)
	}
	forged := 0
	kept, _ := filepath.Glob(b.dir + "/k/*/spec.json")
	for _, f := range append(stateFiles(b), kept...) {
		text, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		for _, pid := range inits {
			text = bytes.ReplaceAll(text, fmt.Appendf(nil, `"pid":%d,`, pid), fmt.Appendf(nil, `"pid":%d,`, innocent.Process.Pid))
		}
		if bytes.Contains(text, fmt.Appendf(nil, `"pid":%d,`, innocent.Process.Pid)) && os.WriteFile(f, text, 0o600) == nil {
			forged++
		}
	}
	if forged == 0 {
		t.Errorf("no state file names pid %v", inits)
	}
	b.sh("true")
	b.demesne("ls")
	b.demesne("stop", id)
	if err := innocent.Process.Signal(syscall.Signal(0)); err != nil {
		t.Error("an innocent process was ended")
	}
	innocent.Process.Kill()
	innocent.Wait()
	for _, f := range stateFiles(b) {
		t.Errorf("stale state stays: %s", f)
	}
}

func stateFiles(b *box) (all []string) {
	for _, dir := range []string{b.run + "/demesne/state", b.home + "/.demesne/run/state"} {
		for _, n := range names(dir) {
			if n == "ended" {
				continue
			}
			all = append(all, dir+"/"+n)
		}
	}
	return all
}
