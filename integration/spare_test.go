package integration

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// spareBox returns a box whose runner is kept alive by a persistent sandbox.
func spareBox(t *testing.T, extra ...string) *box {
	t.Helper()
	b := newBox(t)
	b.extra = extra
	id := b.demesne("create")
	if id.code != 0 {
		t.Fatalf("create: %+v", id)
	}
	t.Cleanup(func() { b.demesne("rm", strings.TrimSpace(id.stdout)) })
	return b
}

// onSpare reports whether a command ran in a prepared sandbox.
func onSpare(p report) bool {
	return slices.ContainsFunc(p.Trace, func(s struct {
		Name string
		MS   float64
	}) bool {
		return s.Name == "prepared"
	})
}

// warm runs a command, or true, until it runs in a prepared sandbox of the same shape, and returns that run's report. The next
// run may find none ready.
func (b *box) warm(flags []string, argv ...string) (p report) {
	b.Helper()
	if argv == nil {
		argv = []string{"true"}
	}
	eventually(b, "a spare", func() bool {
		p, _ = b.report(append([]string{"--trace"}, flags...), argv...)
		time.Sleep(100 * time.Millisecond) // time to prepare the next one
		return onSpare(p)
	})
	return p
}

// own matches the parts of a receipt that differ between sandboxes: names, and the tproxy check, which may time
// out on a loaded machine.
var own = regexp.MustCompile(`"sandbox":"[0-9a-f]+"|:\[[0-9]+\]|{"Name":"egress-by-name"[^}]*}|"level":"[a-z]*"`)

// receiptText returns a receipt without the parts that own matches.
func receiptText(p report) string {
	text, _ := json.Marshal(p.Receipt)
	return own.ReplaceAllString(string(text), "")
}

// TestSpareReceipt checks that a prepared sandbox has the same receipt as one made on demand, and looks the same
// to a program in it.
func TestSpareReceipt(t *testing.T) {
	const look = `sed 's/^[0-9]* [0-9]* [0-9]*:[0-9]* //; s/ shared:[0-9]*//; s/ master:[0-9]*//; s#[^ ]*/\.demesne/out/[^ ]* /out #/out #' /proc/self/mountinfo | sort
		grep -E '^(Cap|NoNew|Seccomp|Uid|Gid|Groups)' /proc/self/status; id; ulimit -a; env | sort; ls -la / /dev /root /tmp /in | sed 's/^\(.[a-z-]*\) *[0-9]*/\1/'; hostname`
	for _, network := range [][]string{nil, {"--allow-domain", "good.test"}} {
		t.Run(fmt.Sprint(network), func(t *testing.T) { sameOnSpare(t, look, network) })
	}
}

func sameOnSpare(t *testing.T, look string, network []string) {
	b := spareBox(t)
	cold, _ := b.report(append([]string{"--trace"}, network...), "sh", "-c", look)
	if onSpare(cold) {
		t.Fatal("the first is made in advance already")
	}
	warm := b.warm(network, "sh", "-c", look)
	times := regexp.MustCompile(`[A-Z][a-z]{2} +[0-9]+ [0-9:]+ `)
	if x, y := times.ReplaceAllString(cold.Stdout, ""), times.ReplaceAllString(warm.Stdout, ""); x != y || cold.ExitCode != 0 {
		t.Errorf("inside, exit %d\nmade on demand:\n%s\nmade in advance:\n%s", cold.ExitCode, x, y)
	}
	if receiptText(cold) != receiptText(warm) {
		t.Errorf("made on demand:  %s\nmade in advance: %s", receiptText(cold), receiptText(warm))
	}
	if reflect.DeepEqual(cold.Receipt.Layers, warm.Receipt.Layers) {
		t.Error("both are in the same namespaces")
	}
}

// TestSpareFresh checks that a prepared sandbox contains no files of an earlier sandbox, and uses the directories
// it was given.
func TestSpareFresh(t *testing.T) {
	b := spareBox(t)
	b.warm(nil)
	const mark = `for d in /tmp /workspace /dev/shm /root /home /var/tmp /out; do
		[ -e $d/mark ] && echo "$d has been used"; echo "$1" > $d/mark; done; (sleep 3222 &) ; cat /out/mark`
	for i := range 5 {
		out := b.mkdir(fmt.Sprint("o", i))
		want := fmt.Sprint(i, "\n")
		p, r := b.report([]string{"--out", out}, "sh", "-c", mark, "sh", fmt.Sprint(i))
		if p.Stdout != want {
			t.Errorf("round %d: %s", i, r.stdout)
		}
		text, err := os.ReadFile(out + "/mark")
		if string(text) != want || err != nil {
			t.Errorf("round %d: /out has %q, %v", i, text, err)
		}
		if n := len(names(out)); n != 1 {
			t.Errorf("round %d: %d files in /out", i, n)
		}
		time.Sleep(50 * time.Millisecond) // most rounds find a prepared sandbox
	}
	work := b.mkdir("w")
	b.warm([]string{"--workspace", work})
	b.sh("echo kept > /workspace/f", "--workspace", work)
	if text, err := os.ReadFile(work + "/f"); string(text) != "kept\n" {
		t.Errorf("/workspace has %q, %v", text, err)
	}
}

// TestSpareShape checks that a prepared sandbox serves only runs of its shape: limits, user, inputs and network
// must match.
func TestSpareShape(t *testing.T) {
	b := spareBox(t)
	n := 0
	eventually(t, "a spare of a plain run, for what no run before had", func() bool {
		b.warm(nil)
		n++
		own := fmt.Sprint("own", n)
		p, r := b.report([]string{"--trace", "--name", own, "--env", "A=" + own, "--timeout", fmt.Sprint(n, "m"), "--out", b.mkdir(own), "--workspace", b.mkdir(own + "w")}, "true")
		if p.ExitCode != 0 {
			t.Fatal(r.stdout)
		}
		return onSpare(p)
	})
	for _, flags := range [][]string{
		{"--memory", "333M"}, {"--pids", "99"}, {"--in", b.file("in", "text", 0o644)}, {"--nesting"},
		{"--allow-domain", "example.com"}, // prepared without a gateway
	} {
		b.warm(nil)
		if p, r := b.report(append([]string{"--trace"}, flags...), "true"); p.ExitCode != 0 || onSpare(p) {
			t.Errorf("%q: in a spare: %v; %s", flags, onSpare(p), r.stdout)
		}
	}
}

// TestSpareNetwork checks that the current caller's policy applies, even if the gateway existed before.
func TestSpareNetwork(t *testing.T) {
	onInternet(t, func(n *internet) {
		program(n, "curl")
		n.demesne("create", "--name", "holder")
		defer n.demesne("rm", "holder")
		var r result
		var p struct {
			report
			Log    string `json:"egress_log"`
			Denied []struct{ Host string }
		}
		eventually(n, "a spare that was prepared for another policy", func() bool {
			n.warm([]string{"--allow-domain", "dark.test"})
			r = n.demesne("run", "--json", "--trace", "--allow-domain", "good.test", "--", "sh", "-c",
				"curl -sS http://good.test/; curl -sS --noproxy '*' http://good.test/; curl -sS http://dark.test/ >&2; curl -sS --noproxy '*' http://dark.test/")
			p.Denied = nil
			if err := json.Unmarshal([]byte(r.stdout), &p); err != nil {
				n.Fatalf("%v: %+v", err, r)
			}
			return onSpare(p.report)
		})
		if p.Stdout != strings.Repeat("hello from good.test\n", 2) || !strings.Contains(p.Stderr, "blocked by demesne: dark.test:80: no rule") {
			n.Error(r.stdout)
		}
		if text, err := os.ReadFile(p.Log); err != nil || strings.Count(string(text), "good.test") < 2 || !strings.Contains(string(text), "dark.test") {
			n.Errorf("log: %s, %v", text, err)
		}
		for _, d := range p.Denied {
			if d.Host != "dark.test" {
				n.Errorf("denied: %+v", p.Denied)
			}
		}
		if n.heard("dark.test") || len(p.Denied) == 0 {
			n.Errorf("dark.test was asked: %q; denied: %+v", n.seen, p.Denied)
		}
	})
}

// TestSpareOff checks that prepared sandboxes are not listed, and are not made for a caller that turns them off.
// An invalid pool size is reported.
func TestSpareOff(t *testing.T) {
	b := newBox(t)
	b.demesne("create", "--name", "holder")
	b.warm(nil)
	if r := b.demesne("ls", "-q"); strings.Count(r.stdout, "\n") != 1 {
		t.Errorf("ls: %q", r.stdout)
	}
	b.demesne("rm", "holder")
	eventually(t, "the spares to be gone", func() bool { return len(descendants()) == 0 })
	t.Run("0", func(t *testing.T) {
		b := spareBox(t, "DEMESNE_POOL_SIZE=0")
		for range 3 {
			if p, _ := b.report([]string{"--trace"}, "true"); onSpare(p) {
				t.Error("made in advance, unwanted")
			}
			time.Sleep(50 * time.Millisecond) // an unwanted one would be prepared by then
		}
	})
	t.Run("many", func(t *testing.T) {
		b := newBox(t)
		b.extra = []string{"DEMESNE_POOL_SIZE=many"}
		if r := b.demesne("run", "--", "true"); r.code != 125 || !strings.Contains(r.stderr, `DEMESNE_POOL_SIZE "many"`) {
			t.Errorf("DEMESNE_POOL_SIZE=many: %+v", r)
		}
	})
}

// TestSpareLocked checks that mounts given to a prepared sandbox are locked like those it started with. Not even
// all capabilities of its user namespace can lift their flags.
func TestSpareLocked(t *testing.T) {
	nsenter := program(t, "nsenter")
	b := spareBox(t)
	out := b.mkdir("o")
	b.warm(nil)
	cmd := b.command("demesne", "run", "--name", "held", "--out", out, "--", "sh", "-c", "touch /out/up; sleep 60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer b.demesne("rm", "held")
	eventually(t, "the sandbox", func() bool { return len(names(out)) == 1 })
	var info struct{ PID int }
	if err := json.Unmarshal([]byte(b.demesne("inspect", "--json", "held").stdout), &info); err != nil {
		t.Fatal(err)
	}
	flags := []string{"-U", "-m", "-t", strconv.Itoa(info.PID)}
	if os.Geteuid() != 0 { // already uid 0 inside
		flags = append(flags, "--preserve-credentials")
	}
	enter := func(argv ...string) (string, error) {
		text, err := exec.Command(nsenter, append(append(flags[:len(flags):len(flags)], "--"), argv...)...).CombinedOutput()
		return string(text), err
	}
	for _, argv := range [][]string{{"mount", "-t", "tmpfs", "none", "/mnt"}, {"mount", "-o", "remount,bind,ro,nosuid,nodev", "/out"}} {
		if text, err := enter(argv...); err != nil {
			t.Fatalf("what may be done, cannot be: %q: %v: %s", argv, err, text)
		}
	}
	for _, argv := range [][]string{
		{"mount", "-o", "remount,bind,suid,nodev", "/out"}, {"mount", "-o", "remount,bind,nosuid,dev", "/out"},
		{"mount", "-o", "remount,bind,rw", "/usr"}, {"umount", "/usr"},
	} {
		if text, err := enter(argv...); err == nil {
			t.Errorf("%q is allowed: %s", argv, text)
		}
	}
}

// TestTimerSlack checks that timers of the runner and of PID 1 are late by at most 0.2 ms: Go's scheduler sleeps for
// microseconds before it moves a goroutine. Only root may look. A command's timers are the kernel's default.
func TestTimerSlack(t *testing.T) {
	b := newBox(t)
	b.must("create", "--name", "holder")
	defer b.must("rm", "holder")
	if r := b.demesne("exec", "holder", "--", "cat", "/proc/self/timerslack_ns"); r.stdout != "50000\n" {
		t.Errorf("a command: %+v", r)
	}
	if os.Getuid() != 0 {
		return
	}
	for _, name := range []string{"demesne-runner", "demesne-init"} {
		pids := named(name)
		for _, pid := range pids {
			if slack, err := os.ReadFile(fmt.Sprintf("/proc/%d/timerslack_ns", pid)); err == nil && string(slack) != "200000\n" {
				t.Errorf("%s: %s", name, slack)
			}
		}
		if len(pids) == 0 {
			t.Errorf("no %s", name)
		}
	}
}

// TestSpareKilled kills the runner, or PID 1s, while sandboxes are being prepared or are ready. No leftovers
// remain, and the next run works.
func TestSpareKilled(t *testing.T) {
	rng := rand.New(rand.NewSource(7))
	for _, name := range []string{"demesne-runner", "demesne-init"} {
		for range max(rounds()/5, 5) {
			b := newBox(t)
			b.demesne("create", "--name", "holder")
			b.sh("true")
			time.Sleep(time.Duration(rng.Intn(60)) * time.Millisecond) // another moment in each round
			for _, pid := range named(name) {
				syscall.Kill(pid, syscall.SIGKILL)
			}
			// A prepared sandbox that is taken while it dies fails like any other sandbox, so this run may fail.
			eventually(t, "a run that is not", func() bool { return b.demesne("run", "--", "true").code == 0 })
			b.demesne("rm", "holder")
			eventually(t, "every process to be gone", func() bool { return len(descendants()) == 0 })
		}
	}
}
