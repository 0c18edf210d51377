package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"demesne/integration/fixture"
)

// environmentsPage has a table for each user: environment × what works there.
const environmentsPage = "../docs/reference/environments.md"

// columns are the columns of the page.
var columns = []string{"check", "run", "session", "network", "image", "mcp", "agent", "build"}

// grades are the values of a cell, from the worst to the best. "-" does not work.
var grades = []string{"untried", "-", "minimal", "yes", "namespaces"}

// environmentOf makes programs start in an environment, in a box that has what they need.
type environmentOf func(*gallery, *testing.T) func(args ...string) *exec.Cmd

// environments are the rows of the page.
var environments = []struct {
	name string
	make environmentOf
}{
	{"a machine", func(g *gallery, _ *testing.T) func(...string) *exec.Cmd {
		return func(args ...string) *exec.Cmd { return g.command("demesne", args...) }
	}},
	{"Docker's default profile, uid 0", docker(container{})},
	{"Docker's default profile, uid 1000, HOME=/", docker(container{uid: 1000})},
	{"Kubernetes, restricted: no capabilities, no_new_privs, read-only root", docker(container{uid: 1000, restricted: true})},
	{"Kubernetes, hostUsers: false", docker(container{userns: true})},
	{"Kubernetes, hostUsers: false, seccompProfile: Unconfined", docker(container{userns: true, unconfined: true})},
	{"mount refused by a security module", refusal("mount=13")},
	{"links of unnamed files refused, as by AppArmor profiles without mediate_deleted", refusal("links=2")},
	{"unit with SystemCallFilter=@system-service, systemd 252", refusal("~@system-service=kill")},
	{"unit with SystemCallFilter=@system-service seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self", refusal("@sandbox=allow", "~@system-service=kill")},
	{"unit with RestrictSUIDSGID=yes", refusal("openat2=38")},
	{"unit with RestrictAddressFamilies without AF_NETLINK", refusal("AF_NETLINK=97")},
	{"AF_UNIX sockets refused, as in shells of agents", refusal("AF_UNIX=1")},
	{"unit with ProcSubset=pid", anotherProc("-t proc -o subset=pid proc")},
	{"proc mounted read-only", anotherProc("-o remount,bind,ro")},
	{"HOME=/", func(g *gallery, t *testing.T) func(...string) *exec.Cmd {
		return func(args ...string) *exec.Cmd {
			cmd := g.command("demesne", args...)
			cmd.Env = append(cmd.Env, "HOME=/", "XDG_RUNTIME_DIR=", "DEMESNE_STATE="+g.mkdir("state"))
			return cmd
		}
	}},
	{"bwrap --unshare-all --share-net --proc /proc", bubblewrap("--proc", "/proc")},
	{"bwrap --unshare-all --share-net --as-pid-1 --proc /proc", bubblewrap("--as-pid-1", "--proc", "/proc")},
	{"bwrap --unshare-all --share-net, with the machine's /proc", bubblewrap()},
	{"bwrap --unshare-all --share-net, without /proc", bubblewrap("--tmpfs", "/proc")},
	{"a sandbox of demesne", nested()},
	{"a sandbox of demesne with --nesting", nested("--nesting")},
}

func refusal(refusals ...string) environmentOf {
	return func(g *gallery, _ *testing.T) func(...string) *exec.Cmd { return g.refusing(refusals...) }
}

// anotherProc needs no pid namespace of its own, unlike underProc, so that sessions live on.
func anotherProc(mount string) environmentOf {
	return func(g *gallery, t *testing.T) func(...string) *exec.Cmd {
		if os.Getuid() != 0 {
			t.Skip("needs root")
		}
		// One namespace for all commands: a runner serves the callers of its mount namespace.
		holder := g.command(program(t, "unshare"), "-m", "sh", "-c", "mount "+mount+" /proc && echo ready && exec sleep 1000")
		out, err := holder.StdoutPipe()
		if err != nil || holder.Start() != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { holder.Process.Kill(); holder.Wait() })
		io.ReadFull(out, make([]byte, 6))
		return func(args ...string) *exec.Cmd {
			return g.command(program(t, "nsenter"), append([]string{"-m", "-t", strconv.Itoa(holder.Process.Pid), bin + "/demesne"}, args...)...)
		}
	}
}

// bubblewrap gives each command a bwrap of its own, as agents do. It sees the machine's files, and writes only to the box. The
// runner is killed with it, and its directory for sockets is gone too.
func bubblewrap(flags ...string) environmentOf {
	return func(g *gallery, t *testing.T) func(...string) *exec.Cmd {
		flags = slices.Concat([]string{"--ro-bind", "/", "/", "--dev", "/dev", "--bind", g.dir, g.dir, "--tmpfs", g.dir + "/r", "--unshare-all", "--share-net", "--die-with-parent"}, flags, []string{bin + "/demesne"})
		return func(args ...string) *exec.Cmd { return g.command(program(t, "bwrap"), append(flags, args...)...) }
	}
}

// nested runs commands in a persistent sandbox, which keeps the state of the inner demesne.
func nested(flags ...string) environmentOf {
	return func(g *gallery, t *testing.T) func(...string) *exec.Cmd {
		if r := g.demesne(append([]string{"create", "--name", "outer", "--in", bin + ":bin"}, flags...)...); r.code != 0 {
			t.Fatalf("create: %+v", r)
		}
		t.Cleanup(func() { g.demesne("rm", "outer") })
		return func(args ...string) *exec.Cmd {
			return g.command("demesne", append([]string{"exec", "-i", "outer", "--", "env", "DEMESNE_LINGER=0", "/in/bin/demesne"}, args...)...)
		}
	}
}

// TestEnvironments tries demesne in each environment, and fails if something works worse than docs/reference/environments.md
// says. It prints the table that it found.
func TestEnvironments(t *testing.T) {
	page := readPage(t)
	rows := make([]string, len(environments))
	for i, e := range environments {
		t.Run(e.name, func(t *testing.T) {
			cells := tryEnvironment(t, e.make)
			if strings.HasPrefix(e.name, "a sandbox of demesne") { // it reaches neither the registry nor the model
				cells[4], cells[6], cells[7] = "untried", "untried", "untried"
			}
			rows[i] = fmt.Sprintf("| %s | %s |", e.name, strings.Join(cells, " | "))
			want := page[e.name]
			if len(want) != len(cells) {
				t.Fatalf("not on the page: %s", rows[i])
			}
			for n := range cells {
				if promised := slices.Index(grades, want[n]); promised < 0 || slices.Index(grades, cells[n]) < promised {
					t.Errorf("%s: %q, and the page says %q", columns[n], cells[n], want[n])
				}
			}
		})
	}
	t.Logf("the table of this user:\n%s", strings.Join(rows, "\n"))
}

// readPage returns the cells of each row in the table of this user.
func readPage(t *testing.T) map[string][]string {
	t.Helper()
	_, part, _ := strings.Cut(readFile(t, environmentsPage), map[bool]string{true: "\n## Root\n", false: "\n## An ordinary user\n"}[os.Getuid() == 0])
	part, _, _ = strings.Cut(part, "\n## ")
	rows := map[string][]string{}
	for line := range strings.Lines(part) {
		fields := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(fields) == len(columns)+1 {
			for i := range fields {
				fields[i] = strings.TrimSpace(fields[i])
			}
			rows[fields[0]] = fields[1:]
		}
	}
	return rows
}

// tryEnvironment returns the cells of an environment.
func tryEnvironment(t *testing.T, in environmentOf) (cells []string) {
	b, _ := newAgentBox(t, func(fixture.ModelRequest) fixture.Answer { return fixture.Answer{Text: "Done."} })
	reg, err := fixture.NewRegistry(b.dir+"/registry", fixture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(reg.Close)
	g := &gallery{box: b, reg: reg}
	g.cli = func(args ...string) *exec.Cmd { return g.command("demesne", args...) }
	g.extra = append(g.extra, "CONTAINERS_REGISTRIES_CONF="+g.file("registries.conf", reg.Conf(), 0o644), "TMPDIR="+g.mkdir("t"))
	g.mkdir("i")
	t.Cleanup(g.sweep)
	ref, _ := g.simple("demo:1")
	demesne := in(g, t)
	do := func(args ...string) result { return g.finish(demesne(args...)) }
	yes := func(ok bool, r result) string {
		if ok {
			return "yes"
		}
		t.Logf("%+v", r)
		return "-"
	}
	r := do("check")
	cells = append(cells, yes(strings.Contains(r.stdout, "demesne run has level"), r))
	r = do("run", "--json", "--", "echo", "ran")
	var p report
	level := yes(json.Unmarshal([]byte(r.stdout), &p) == nil && p.Stdout == "ran\n", r)
	switch {
	case level == "-":
	case p.Receipt.Level == "minimal":
		level = "minimal"
	default:
		level = "namespaces"
	}
	cells = append(cells, level)
	do("create", "--name", "one")
	do("exec", "one", "-c", "echo kept > f")
	r = do("exec", "one", "--", "cat", "f")
	cells = append(cells, yes(r.stdout == "kept\n", r))
	do("rm", "one")
	r = do("run", "--allow-domain", "example.test", "--", "echo", "ran")
	cells = append(cells, yes(r.stdout == "ran\n", r))
	r = do("run", "--image", ref, "--", "echo", "ran")
	cells = append(cells, yes(r.stdout == "ran\n", r))
	cells = append(cells, g.tryMCP(t, demesne("mcp")))
	r = do("agent", "run", "Work.")
	cells = append(cells, yes(r.code == 0 && strings.Contains(r.stdout, "Done."), r))
	g.file("context/Containerfile", "FROM "+ref+"\nRUN echo built > /f\n", 0o644)
	r = do("build", "-t", "local/made:1", g.dir+"/context")
	cells = append(cells, yes(r.code == 0, r))
	do("gc", "--all", "--build") // layers that only this environment can remove
	return cells
}

// defaultCall is a session of MCP with the default call of a model.
const defaultCall = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sandbox_script","arguments":{"command":"echo $((6*7))in; echo x > f"}}}
`

// tryMCP makes the default call of a model.
func (g *gallery) tryMCP(t *testing.T, cmd *exec.Cmd) string {
	cmd.Stdin = strings.NewReader(defaultCall)
	r := g.finish(cmd)
	if strings.Contains(r.stdout, "42in") {
		return "yes"
	}
	t.Logf("mcp: %+v", r)
	return "-"
}

// dockerCaps are the capabilities that Docker leaves uid 0.
var dockerCaps = []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETGID", "CAP_SETUID", "CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL", "CAP_AUDIT_WRITE"}

// container is a container of runc: its user, whether it is a pod of Kubernetes' restricted standard, whether it has a user
// namespace, as a pod with hostUsers: false has, and whether it has no seccomp filter.
type container struct {
	uid                            int
	restricted, userns, unconfined bool
}

// podIDs is the machine's id of uid 0 in a container with a user namespace.
const podIDs = 400000

func docker(c container) environmentOf {
	return func(g *gallery, t *testing.T) func(...string) *exec.Cmd { return g.docker(t, c) }
}

// docker starts the CLI in a container of runc with moby's seccomp profile, Docker's masks and the machine's network, so
// that it reaches the test's registry.
func (g *gallery) docker(t *testing.T, c container) func(args ...string) *exec.Cmd {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	runc, root, n := program(t, "runc"), g.containerRoot(), 0
	caps, home, first := dockerCaps, "/root", 0
	if c.userns {
		first = podIDs
	}
	if c.uid != 0 {
		home = "/"
	}
	if c.restricted {
		caps = []string{}
		g.file("rootfs/etc/hosts", "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n", 0o644)
	}
	if owner := first + c.uid; owner != 0 {
		filepath.Walk(g.dir, func(path string, _ os.FileInfo, _ error) error { return os.Lchown(path, owner, owner) })
	}
	os.Chown(root, first, first) // where runc makes the mount points
	effective := caps
	if c.uid != 0 {
		effective = []string{}
	}
	bind := func(path string, options ...string) map[string]any {
		return map[string]any{"destination": path, "type": "bind", "source": path, "options": append([]string{"rbind"}, options...)}
	}
	mount := func(at, kind string, options ...string) map[string]any {
		return map[string]any{"destination": at, "type": kind, "source": kind, "options": options}
	}
	return func(args ...string) *exec.Cmd {
		n++
		env := slices.DeleteFunc(g.environ(), func(s string) bool { return strings.HasPrefix(s, "HOME=") || strings.HasPrefix(s, "XDG_") })
		config := map[string]any{
			"ociVersion": "1.0.2", "hostname": "container", "root": map[string]any{"path": root, "readonly": c.restricted},
			"process": map[string]any{
				"args": append([]string{bin + "/demesne"}, args...), "cwd": "/tmp", "env": append(env, "HOME="+home), "noNewPrivileges": c.restricted,
				"user":         map[string]any{"uid": c.uid, "gid": c.uid},
				"capabilities": map[string]any{"bounding": caps, "effective": effective, "permitted": effective},
			},
			"mounts": []any{mount("/proc", "proc"), mount("/dev", "tmpfs", "nosuid", "mode=755"), mount("/dev/pts", "devpts", "newinstance", "ptmxmode=0666", "mode=0620"),
				mount("/dev/shm", "tmpfs", "nosuid", "nodev", "mode=1777"), mount("/tmp", "tmpfs", "mode=1777"), mount("/sys", "sysfs", "ro", "nosuid"),
				bind("/usr", "ro"), bind(bin, "ro"), bind(g.dir)},
			"linux": map[string]any{
				"namespaces": []any{map[string]any{"type": "pid"}, map[string]any{"type": "mount"}, map[string]any{"type": "ipc"}, map[string]any{"type": "uts"}},
				"seccomp":    mobyProfile(t, caps),
				"maskedPaths": []string{"/proc/asound", "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug",
					"/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap"},
				"readonlyPaths": []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
			},
		}
		if c.userns {
			inUserns(config)
		}
		if c.unconfined {
			delete(config["linux"].(map[string]any), "seccomp")
		}
		text, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		bundle := "bundle" + strconv.Itoa(n)
		g.file(bundle+"/config.json", string(text), 0o644)
		return g.command(runc, "--root", g.dir+"/runc", "run", "--bundle", g.dir+"/"+bundle, "c"+strconv.Itoa(n)+"-"+filepath.Base(g.dir))
	}
}

// inUserns gives a container of runc a user namespace. There runc may not mount the sysfs of the machine's network, which a pod
// does not share.
func inUserns(config map[string]any) {
	ids := []any{map[string]any{"containerID": 0, "hostID": podIDs, "size": 65536}}
	linux := config["linux"].(map[string]any)
	linux["uidMappings"], linux["gidMappings"] = ids, ids
	mounts := config["mounts"].([]any)
	i := slices.IndexFunc(mounts, func(m any) bool { return m.(map[string]any)["destination"] == "/sys" })
	mounts[i] = map[string]any{"destination": "/sys", "type": "bind", "source": "/sys", "options": []string{"rbind", "ro"}}
	linux["namespaces"] = append(linux["namespaces"].([]any), map[string]any{"type": "user"})
}

// mobyProfile returns moby's profile for a container with capabilities, from the module that integration/tools pins.
func mobyProfile(t *testing.T, caps []string) map[string]any {
	t.Helper()
	cmd := exec.Command(program(t, "go"), "mod", "download", "-json", "github.com/moby/profiles/seccomp")
	cmd.Dir = "tools"
	out, err := cmd.Output()
	var module struct{ Dir string }
	if err != nil || json.Unmarshal(out, &module) != nil {
		need(t, false, "moby's profile: "+fmt.Sprint(err))
	}
	type condition struct{ Caps, Arches []string }
	var profile struct {
		Syscalls []struct {
			Names              []string
			Action             string
			ErrnoRet           *uint
			Args               []map[string]any
			Includes, Excludes condition
		}
	}
	if err := json.Unmarshal([]byte(readFile(t, module.Dir+"/default.json")), &profile); err != nil {
		t.Fatal(err)
	}
	has := func(c string) bool { return slices.Contains(caps, c) }
	var calls []any
	for _, s := range profile.Syscalls {
		missing := slices.ContainsFunc(s.Includes.Caps, func(c string) bool { return !has(c) }) || len(s.Includes.Arches) > 0 && !slices.Contains(s.Includes.Arches, "amd64")
		if missing || slices.ContainsFunc(s.Excludes.Caps, has) || slices.Contains(s.Excludes.Arches, "amd64") {
			continue
		}
		call := map[string]any{"names": s.Names, "action": s.Action}
		if s.ErrnoRet != nil {
			call["errnoRet"] = *s.ErrnoRet
		}
		if len(s.Args) > 0 {
			call["args"] = s.Args
		}
		calls = append(calls, call)
	}
	return map[string]any{"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 1, "architectures": []string{"SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"}, "syscalls": calls}
}
