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

// rounds returns how often to kill each kind of victim: enough for 200 kills by both users. make chaos asks
// for more.
func rounds() int {
	if n, err := strconv.Atoi(os.Getenv("DEMESNE_ROUNDS")); err == nil && n > 0 {
		return n
	}
	return 15
}

// busy is a workload with everything that a sandbox could leave behind: daemons, files in all places, pipes, and
// a busy loop.
const busy = `setsid sleep 3222 & (sleep 3222 & sleep 3222 &) ; mkfifo /tmp/p; echo x > /out/f; echo y > /workspace/g
	while :; do echo z > /tmp/h; sleep 0.01; done`

// victims lists the processes to kill, found among the descendants of the test. A nil find kills the caller
// itself.
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

// runners lists the processes named demesne-runner if servers is set, or else the reapers that clean up after
// them.
func runners(servers bool) (pids []int) {
	if servers {
		return named("demesne-runner")
	}
	return named("demesne-reaper")
}

func named(name string) (pids []int) {
	for _, p := range descendants() {
		if strings.HasSuffix(p.name, name) { // ".demesne-init" inside a sandbox, where it is a hidden file of /dev
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// TestLeftoversKilled kills each victim at many moments (P20). The kernel and the reaper clean up, and the next
// run works.
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
	time.Sleep(delay) // the moment that the caller chose
	// Wait for a victim that does not exist yet. Kill again one that an unconnected caller has replaced.
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

// next waits for the end of every process. If the reaper is killed, or the caller or runner dies before the
// reaper starts, empty files and control groups remain. The next run removes those.
func (b *box) next(t *testing.T) {
	t.Helper()
	eventually(t, "every process to be gone", func() bool { return len(descendants()) == 0 })
	if len(b.droppings())+len(b.outside()) > 0 {
		b.lingers("0").sh("true")
	}
}

// ended waits for the caller to exit, which it must do whichever process died.
func ended(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	done := make(chan struct{})
	go func() { cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(patience):
		t.Error("the caller hangs")
		cmd.Process.Kill()
		<-done
	}
}

// TestLeftoversNone checks that no leftovers remain after success or failure. The box checks this at the end of
// each test.
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

// TestLeftoversCheckKilled kills demesne check, or its runner, at random moments. The box then checks that the
// trees on which it tries overlayfs are gone.
func TestLeftoversCheckKilled(t *testing.T) {
	b := newBox(t)
	rng := rand.New(rand.NewSource(1))
	for round := range max(16, rounds()/8) {
		cmd := b.command("demesne", "check")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rng.Intn(120)) * time.Millisecond) // another moment in each round
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

// TestEscapeP20SupervisorDies checks the caller's exit code when the runner or PID 1 is killed (P20).
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

// TestEscapeP18StalePID checks that a stale state file with the PID of an unrelated process ends no process
// (P18). The rest of the file is valid.
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
	b.demesne("rm", id)
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
