package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"demesne/integration/fixture"

	"golang.org/x/sys/unix"
)

// strangerUID has no passwd entry and no subordinate ids, so its sandboxes have one id.
const strangerUID = 54321

// machine holds the directories, user and environment of the programs under test, and the results.
type machine struct {
	bin, dir        string
	uid             int // -1: the current user
	rounds          int
	trajectoryCount int  // agents at once of part trajectories
	layersMiB       int  // size of the image of part layers
	live            int  // sandboxes of part thousands
	asRoot          bool // part thousands runs as root
	env             []string
	group           *os.File // control group (version 2) of commands; nil: this process's own
	rows            []row
	bounds          []bound
	table           comparison

	elsewhere *fixture.Elsewhere // network namespace of the servers of internet
}

type row struct {
	Name        string
	Median, P99 time.Duration
	Note        string
}

type bound struct {
	Name, Want, Got string
	OK              bool
}

func newMachine(bin, at string) (*machine, error) {
	dir, err := os.MkdirTemp(at, "dmb")
	if err != nil {
		return nil, err
	}
	os.Chmod(dir, 0o755)
	m := &machine{bin: dir + "/bin", dir: dir, uid: -1}
	for _, d := range []string{"bin", "h", "r"} {
		os.Mkdir(filepath.Join(dir, d), 0o755)
	}
	// Copy the programs: strangerUID may not be able to read the caller's clone. This program is also the client of
	// the measurements.
	programs, err := filepath.Glob(filepath.Join(bin, "demesne*"))
	if err != nil || len(programs) == 0 {
		return nil, fmt.Errorf("find programs in %q: %d (make build)", bin, len(programs))
	}
	err = copyFile("/proc/self/exe", m.bin+"/bench")
	for _, p := range programs {
		err = errors.Join(err, copyFile(p, filepath.Join(m.bin, filepath.Base(p))))
	}
	if err != nil {
		return nil, fmt.Errorf("copy programs: %w", err)
	}
	if os.Getuid() == 0 {
		m.uid = strangerUID
		os.Chown(dir+"/h", m.uid, m.uid)
		os.Chown(dir+"/r", m.uid, m.uid)
	}
	return m, nil
}

// narrow restarts the program of an ordinary user under no_new_privs. newuidmap cannot gain privileges then, so
// sandboxes have one id, as those of strangerUID have. prctl(2) sets the flag for one thread only; programs
// started by other threads would have other privileges, and so a runner of their own. execve(2) keeps the calling
// thread's flag for the whole new program.
func narrow() error {
	set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil || set == 1 || os.Getuid() == 0 {
		return err
	}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return fmt.Errorf("start again: %w", unix.Exec("/proc/self/exe", os.Args, os.Environ()))
}

// copyFile copies a file to where the user of the programs can read it.
func copyFile(from, to string) error {
	raw, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, raw, 0o755)
	}
	return err
}

func (m *machine) close() { os.RemoveAll(m.dir) }

func (m *machine) command(argv ...string) *exec.Cmd {
	cmd := exec.Command(argv[0], argv[1:]...)
	if !strings.Contains(argv[0], "/") {
		cmd = exec.Command(filepath.Join(m.bin, argv[0]), argv[1:]...)
	}
	cmd.Dir = m.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + m.dir + "/h", "XDG_RUNTIME_DIR=" + m.dir + "/r", "DEMESNE_IMAGE_STORE=" + m.dir + "/i"}
	cmd.Env = append(cmd.Env, m.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // the load ends when the bench is killed
	if m.group != nil {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(m.group.Fd())
	}
	if m.uid >= 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(m.uid), Gid: uint32(m.uid)}
	}
	return cmd
}

// time runs argv to its end and returns how long that took.
func (m *machine) time(argv ...string) (time.Duration, error) {
	cmd := m.command(argv...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	start := time.Now()
	err := cmd.Run()
	d := time.Since(start)
	if err != nil {
		return 0, fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, errs.Bytes())
	}
	return d, nil
}

func (m *machine) output(argv ...string) (string, error) {
	cmd := m.command(argv...)
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}

// alone waits until this process has no descendants left.
func alone() error { return gone(func(relative) bool { return true }) }

// gone waits until no descendant of this process matches.
func gone(match func(relative) bool) error {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if !slices.ContainsFunc(family(), match) {
			return nil
		}
	}
	return errors.New("a runner without work does not end")
}

type relative struct {
	pid, ppid int
	name      string
}

// family lists the living descendants of this process, and reaps its dead children.
func family() (out []relative) {
	entries, _ := os.ReadDir("/proc")
	var all []relative
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		stat, err2 := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil || err2 != nil {
			continue
		}
		open, shut := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
		f := strings.Fields(string(stat[shut+1:]))
		ppid, _ := strconv.Atoi(f[1])
		if f[0] == "Z" {
			if ppid == os.Getpid() {
				unix.Wait4(pid, nil, unix.WNOHANG, nil)
			}
			continue
		}
		all = append(all, relative{pid, ppid, string(stat[open+1 : shut])})
	}
	ours := map[int]bool{os.Getpid(): true}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if ours[p.ppid] && !ours[p.pid] {
				ours[p.pid], grown = true, true
				out = append(out, p)
			}
		}
	}
	return out
}

// anonymous returns the anonymous resident memory of a process, in MiB.
func anonymous(pid int) float64 { return memory(pid, "RssAnon:") }

// memory returns one line of a process's status, in MiB.
func memory(pid int, line string) float64 {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(raw), line)
	kib, _ := strconv.ParseFloat(strings.Fields(rest + " 0")[0], 64)
	return kib / 1024
}

// ticks returns the processor time that a process has used, in clock ticks (hundredths of a second).
func ticks(pid int) int {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return user + system
}
