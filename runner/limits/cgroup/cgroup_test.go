package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const hybrid = `9:name=systemd:/
8:pids:/
4:memory:/job/7
2:cpu,cpuacct:/a:b
0::/user.slice
`

func TestParseMemberships(t *testing.T) {
	ms := parseMemberships(hybrid + "rubbish\n")
	if len(ms) != 5 {
		t.Fatalf("%+v", ms)
	}
	for _, c := range []struct{ controller, path string }{
		{"pids", "/"}, {"memory", "/job/7"}, {"cpu", "/a:b"}, {"", "/user.slice"},
	} {
		if m, ok := Find(ms, c.controller); !ok || m.Path != c.path || m.V2 != (c.controller == "") {
			t.Errorf("%q: %+v, %v", c.controller, m, ok)
		}
	}
	if _, ok := Find(ms, "io"); ok {
		t.Error("found a missing controller")
	}
}

const mountinfo = `23 1 254:0 / / rw shared:1 - ext4 /dev/vda rw
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
36 31 0:33 /../.. /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
41 31 0:38 / /sys/fs/cgroup/with\040blank rw - cgroup2 cgroup2 rw,nsdelegate
`

func TestPathOf(t *testing.T) {
	mounts := parseMounts(mountinfo)
	if len(mounts) != 4 {
		t.Fatalf("%+v", mounts)
	}
	for _, c := range []struct {
		m    Membership
		want string // empty: an error
	}{
		{Membership{Controllers: []string{"cpu", "cpuacct"}, Path: "/a"}, "/sys/fs/cgroup/cpu,cpuacct/a"},
		{Membership{Controllers: []string{"memory"}, Path: "/docker/x/y"}, "/sys/fs/cgroup/memory/y"},
		{Membership{Controllers: []string{"memory"}, Path: "/docker/x"}, "/sys/fs/cgroup/memory"},
		{Membership{Controllers: []string{"memory"}, Path: "/other"}, ""}, // outside the mounted tree
		{Membership{Controllers: []string{"pids"}, Path: "/"}, ""},        // the mount's root is above the reader's namespace
		{Membership{V2: true, Path: "/user.slice"}, "/sys/fs/cgroup/with blank/user.slice"},
		{Membership{V2: true, Path: "/../x"}, ""},
		{Membership{Controllers: []string{"blkio"}, Path: "/"}, ""},
	} {
		got, err := pathOf(c.m, mounts)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%+v: %q, %v", c.m, got, err)
		}
	}
}

func TestParents(t *testing.T) {
	unified := []Mount{{Root: "/", Point: "/sys/fs/cgroup", V2: true}}
	v1 := func(c string) Mount { return Mount{Root: "/", Point: "/cg/" + c, Controllers: []string{c}} }
	for _, c := range []struct {
		name   string
		self   []Membership
		mounts []Mount
		want   []parent
	}{
		{"version 2", []Membership{{V2: true, Path: "/x"}}, unified, []parent{{"/sys/fs/cgroup", true}}},
		{
			"all in version 1",
			[]Membership{{Controllers: []string{"memory"}, Path: "/m"}, {Controllers: []string{"pids"}, Path: "/"}, {Controllers: []string{"cpu"}, Path: "/"}, {V2: true, Path: "/"}},
			append([]Mount{v1("memory"), v1("pids"), v1("cpu")}, unified...),
			[]parent{{"/cg/memory/m", false}, {"/cg/pids", false}, {"/cg/cpu", false}},
		},
		{
			"split",
			[]Membership{{Controllers: []string{"memory"}, Path: "/m"}, {V2: true, Path: "/"}},
			append([]Mount{v1("memory")}, unified...),
			[]parent{{"/cg/memory/m", false}, {"/sys/fs/cgroup", true}},
		},
		{"nothing", []Membership{{Controllers: []string{"blkio"}, Path: "/"}}, nil, nil},
	} {
		if got := parents(c.self, c.mounts); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

func TestKeyed(t *testing.T) {
	const events = "low 0\noom 2\noom_kill 1\noom_group_kill 0\n"
	for key, want := range map[string]int64{"oom": 2, "oom_kill": 1, "max": 0} {
		if got := keyed(events, key); got != want {
			t.Errorf("%s: %d", key, got)
		}
	}
}

func TestReapRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := Reap([]string{dir}); err == nil {
		t.Error("removed a directory it did not make")
	}
	if err := Reap([]string{filepath.Join(dir, "gone", Name("x"))}); err != nil {
		t.Error(err)
	}
}

// TestPrepareReap: a killed runner leaves nested groups with processes in them.
func TestPrepareReap(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	key := fmt.Sprintf("reap%d", os.Getpid())
	dirs, err := Prepare(key, 100000)
	if len(dirs) == 0 {
		t.Skip("no cgroup can be prepared here: ", err)
	}
	t.Log(dirs)
	for _, d := range dirs {
		var st unix.Stat_t
		if err := unix.Stat(d, &st); err != nil || st.Uid != 100000 {
			t.Errorf("%s: owner %d, %v", d, st.Uid, err)
		}
		if err := os.MkdirAll(d+"/sandbox/box/deep", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p, err := os.StartProcess("/bin/sleep", []string{"sleep", "60"}, &os.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if err := os.WriteFile(d+"/sandbox/box/deep/cgroup.procs", fmt.Append(nil, p.Pid), 0); err != nil {
			t.Fatal(err)
		}
	}
	// Preparing the same key again removes the groups of a dead runner.
	done := make(chan string)
	go func() {
		s, _ := p.Wait()
		done <- s.String()
	}()
	if dirs, err = Prepare(key, 100000); err != nil {
		t.Fatal(err)
	}
	select {
	case s := <-done:
		if !strings.Contains(s, "killed") {
			t.Error(s)
		}
	case <-time.After(time.Minute):
		t.Fatal("the process in the group lives on")
	}
	if err := Reap(dirs); err != nil {
		t.Error(err)
	}
	for _, d := range dirs {
		if _, err := os.Lstat(d); err == nil {
			t.Errorf("%s is left", d)
		}
	}
}

// TestWriteInterrupted: signals that the Go runtime sends to its own threads do not prevent setting a limit.
func TestWriteInterrupted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dirs, err := Prepare(fmt.Sprintf("interrupted%d", os.Getpid()), 100000)
	if len(dirs) == 0 {
		t.Skip("no cgroup can be prepared here: ", err)
	}
	defer Reap(dirs)
	over, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-over:
				return
			default:
				interruptThreads()
			}
		}
	}()
	defer func() { close(over); <-stopped }()
	for _, path := range dirs {
		d, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		for _, file := range []string{"memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.max", "pids.max"} {
			for i := range 20_000 {
				err := d.Write(file, []string{"1000000", "100000000"}[i%2])
				if errors.Is(err, unix.ENOENT) {
					break
				}
				if errors.Is(err, unix.EINTR) {
					t.Fatal(err)
				}
			}
		}
	}
}

// interruptThreads sends every thread of this process the runtime's preemption signal.
func interruptThreads() {
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, task := range tasks {
		if tid, err := strconv.Atoi(task.Name()); err == nil {
			unix.Tgkill(os.Getpid(), tid, unix.SIGURG)
		}
	}
}
