package integration

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"demesne/integration/fixture"
)

// metadata is an image of busybox in a layout whose JSON documents a test writes itself. The library of the other tests
// cannot write a document that is malformed or ambiguous.
type metadata struct {
	*gallery
	layer string // its descriptor
	diff  string
}

func newMetadata(t testing.TB, g *gallery) *metadata {
	t.Helper()
	g.file("layout/oci-layout", `{"imageLayoutVersion":"1.0.0"}`, 0o644)
	raw, err := fixture.Tar(g.busybox()...)
	if err != nil {
		t.Fatal(err)
	}
	m := &metadata{gallery: g}
	m.layer = m.blob("application/vnd.oci.image.layer.v1.tar", string(raw))
	m.diff = fmt.Sprintf("sha256:%x", sha256.Sum256(raw))
	return m
}

// blob writes a blob, and returns the members of its descriptor.
func (m *metadata) blob(mediaType, content string) string {
	m.Helper()
	hex := fmt.Sprintf("%x", sha256.Sum256([]byte(content)))
	m.file("layout/blobs/sha256/"+hex, content, 0o644)
	return fmt.Sprintf(`"mediaType":%q,"digest":"sha256:%s","size":%d`, mediaType, hex, len(content))
}

// saying is an image's metadata. Each field is JSON text: members of an object, with a comma at its end.
type saying struct {
	config   string // of the configuration's member config
	image    string // of the configuration
	manifest string
	index    string // of the descriptor in index.json
	kind     string // the media type of the configuration
}

// write writes d as the only image of the layout, and returns its reference.
func (m *metadata) write(d saying) string {
	m.Helper()
	if d.kind == "" {
		d.kind = "application/vnd.oci.image.config.v1+json"
	}
	config := m.blob(d.kind, fmt.Sprintf(`{"architecture":%q,"os":"linux",%s"config":{%s"Labels":{}},"rootfs":{"type":"layers","diff_ids":[%q]}}`,
		runtime.GOARCH, d.image, d.config, m.diff))
	manifest := m.blob("application/vnd.oci.image.manifest.v1+json", fmt.Sprintf(
		`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",%s"config":{%s},"layers":[{%s}]}`, d.manifest, config, m.layer))
	m.file("layout/index.json", fmt.Sprintf(`{"schemaVersion":2,"manifests":[{%s%s}]}`, d.index, manifest), 0o644)
	return "oci:" + m.dir + "/layout"
}

// fields is a JSON object. members writes what is between its braces, with a comma at the end.
type fields map[string]any

func members(o fields) string {
	b, _ := json.Marshal(o)
	return string(b[1:len(b)-1]) + ","
}

// engineKeys are annotations and labels by which an image, a container or a pod tells an engine how to isolate it.
var engineKeys = fields{
	// podman and CRI-O
	"io.podman.annotations.privileged": "TRUE", "io.podman.annotations.seccomp": "unconfined", "io.podman.annotations.label": "disable",
	"io.podman.annotations.apparmor": "unconfined", "io.podman.annotations.init": "TRUE", "io.podman.annotations.userns": "host",
	"io.podman.annotations.volumes-from": "host", "io.podman.annotations.cid-file": "/etc/passwd", "io.podman.annotations.infra.name": "host",
	"io.containers.capabilities": "CAP_SYS_ADMIN,CAP_SYS_PTRACE", "io.containers.trace-syscall": "of:/tmp/profile.json",
	"io.containers.autoupdate": "registry", "org.systemd.property.DeviceAllow": "[('/dev/mem','rwm')]", "run.oci.keep_original_groups": "1",
	"io.kubernetes.cri-o.userns-mode": "host", "io.kubernetes.cri-o.Devices": "/dev/mem:/dev/mem:rwm", "io.kubernetes.cri-o.TrySkipVolumeSELinuxLabel": "true",
	"seccomp-profile.kubernetes.cri-o.io": "unconfined", "io.kubernetes.cri-o.UnifiedCgroup": "memory.max=max", "cpu-quota.crio.io": "disable",
	// crun and runc
	"run.oci.handler": "krun", "run.oci.hooks.stdout": "/tmp/hook", "run.oci.seccomp_fail_unknown_syscall": "0", "run.oci.seccomp.plugins": "/evil.so",
	"run.oci.seccomp_bpf_data": "BgAAAAAA/38=", "run.oci.seccomp.receiver": "/run/seccomp.sock", "run.oci.pidfd_receiver": "/run/pidfd.sock",
	"run.oci.mount_context_type": "none", "run.oci.systemd.force_cgroup_v1": "/sys/fs/cgroup", "run.oci.delegate-cgroup": "/", "run.oci.timens_offset": "99999",
	"org.criu.config": "/etc/criu/evil.conf", "org.opencontainers.runc.exec.isolation": "none",
	// containerd, docker, Kubernetes, Kata, gVisor
	"io.containerd.image.name": "docker.io/library/python:3.12", "io.containerd.runc.v2.group": "host", "com.docker.cli.privileged": "true",
	"cdi.k8s.io/all": "vendor.test/device=all", "security.alpha.kubernetes.io/unsafe-sysctls": "kernel.core_pattern=|/evil",
	"container.seccomp.security.alpha.kubernetes.io/a": "unconfined", "container.apparmor.security.beta.kubernetes.io/a": "unconfined",
	"io.katacontainers.config.hypervisor.path": "/evil", "io.katacontainers.config.runtime.disable_guest_seccomp": "true",
	"dev.gvisor.spec.mount.a.source": "/", "dev.gvisor.flag.network": "host", "nvidia.cdi.k8s.io/a": "all", "io.balena.features.dbus": "1",
	// development containers, and names of images
	"devcontainer.metadata":             `[{"privileged":true,"capAdd":["ALL"],"mounts":["source=/,target=/host,type=bind"],"containerEnv":{"A":"${localEnv:DEMESNE_TEST_SECRET}"},"postCreateCommand":"touch /out/hook"}]`,
	"org.opencontainers.image.ref.name": "docker.io/library/python:3.12", "org.opencontainers.image.base.name": "../../../etc/passwd",
	"dev.demesne.privileged": "true", "demesne.nesting": "true", "": "empty", "\x1b[2J": "\x1b]52;c;eA==\a",
}

// TestEscapeF34Metadata checks that no annotation and no label changes how a sandbox is made: two sandboxes, of which one has
// them in each document of its image, have the same receipt and see the same.
func TestEscapeF34Metadata(t *testing.T) {
	m := newMetadata(t, newGallery(t))
	const look = `grep -E '^(Uid|Gid|Groups|NoNewPrivs|Seccomp|Cap)' /proc/self/status; cut -d' ' -f4- /proc/self/mountinfo | grep -v ' - overlay ' | sed 's/[0-9]*:[0-9]*//g'
		ls /dev /out /; cat /proc/self/uid_map /proc/sys/kernel/core_pattern; env | sort; hostname; ulimit -a`
	same := members(fields{"Env": []string{"PATH=/bin:/usr/bin"}})
	keys, volatile := members(fields{"annotations": engineKeys}), regexp.MustCompile(`[a-z_]+:\[[0-9]+\]|dm[0-9]+|out/[0-9a-f-]+`)
	labels := fields{"Labels": engineKeys, "Annotations": engineKeys, "HostConfig": fields{"Privileged": true, "NetworkMode": "host", "Binds": []string{"/:/host"}},
		"NetworkDisabled": false, "Privileged": true, "Mounts": []string{"/"}, "Devices": []string{"/dev/mem"}}
	var seen, receipts []string
	for _, d := range []saying{
		{config: same},
		{config: same + members(labels), image: keys + members(labels), manifest: keys, index: keys},
	} {
		ref := m.write(d)
		r := m.do("run", "--json", "--image", ref, "--", "/bin/sh", "-c", look)
		var whole struct {
			Stdout  string
			Receipt map[string]any
		}
		if err := json.Unmarshal([]byte(r.stdout), &whole); err != nil || r.code != 0 {
			t.Fatalf("%v: %+v", err, r)
		}
		for _, own := range []string{"sandbox", "image_digest"} {
			delete(whole.Receipt, own)
		}
		text, _ := json.Marshal(whole.Receipt)
		receipts = append(receipts, volatile.ReplaceAllString(string(text), ""))
		seen = append(seen, volatile.ReplaceAllString(whole.Stdout, ""))
	}
	if receipts[0] != receipts[1] || !strings.Contains(receipts[0], `"seccomp_sha256"`) {
		t.Errorf("receipts differ:\n%s\n%s", receipts[0], receipts[1])
	}
	if seen[0] != seen[1] || !strings.Contains(seen[0], "NoNewPrivs:\t1") {
		t.Errorf("the sandboxes differ:\n%s\n%s", seen[0], seen[1])
	}
	if strings.Contains(seen[1], canary) {
		t.Errorf("a value of the host is in the sandbox: %s", seen[1])
	}
	for _, l := range m.listed() {
		if len(l.Names) > 0 && l.Names[0] != "oci:"+m.dir+"/layout" {
			t.Errorf("an annotation names the image %q", l.Names)
		}
	}
}

const ran = "ran\n"

// configured is a hostile configuration, and what must come of it. Without args the image's own command is executed.
type configured struct {
	name string
	saying
	args []string
	out  string // stdout; "": refused
	says string // in the last line of stderr
}

func shellOf(text string) []string { return []string{"-c", text} }

// hostileConfigs use each field of a configuration that demesne reads, and some that it does not read.
func hostileConfigs() []configured {
	rep, echo := strings.Repeat, shellOf("echo ran")
	config := func(name string, o object, args []string, out, says string) configured {
		return configured{name, saying{config: members(o)}, args, out, says}
	}
	user := func(name, user, out, says string) configured {
		return config("user "+name, fields{"User": user}, shellOf("echo $(id -u):$(id -g):$(id -G)"), out, says)
	}
	env := func(name string, env []string, out string) configured {
		return config("environment "+name, fields{"Env": env}, shellOf("echo $PATH; env | grep -E 'canary|^(A|B|HOME|IS_SANDBOX|LD_PRELOAD)=' | sort"), out, "")
	}
	dir := func(name, dir, out, says string) configured {
		return config("directory "+name, fields{"WorkingDir": dir}, shellOf("pwd"), out, says)
	}
	const path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
	words := append([]string{"/bin/echo", "-n"}, strings.Fields(rep("w ", 100_000))...)
	return []configured{
		user("0:0", "0:0", "0:0:0\n", ""),
		user("of signs", "+0:-0", "0:0:0\n", ""),
		user("-1", "-1", "", "find user \"-1\""),
		user("4294967295", "4294967295", "", "range"),
		user("4294967296", "4294967296", "", "range"),
		user("2^64", "18446744073709551616", "", "range"),
		user("with a newline", "root\n", "", `find user "root\n"`),
		user("with control characters", "\x1b[2J\x00", "", `find user "\x1b[2J\x00"`),
		user("that is a path", "../../root", "", "no such user"),
		user("that is an option", "--user=root", "", "no such user"),
		user("of three", "nosuch:0:0", "", "no such user"),
		// Quoted, these are longer than any message between the runner and its caller.
		user("of megabytes", rep("\u0080", 1_500_000), "", "no such user"),
		env("without =", []string{"DEMESNE_TEST_SECRET", "AWS_SECRET_ACCESS_KEY", "LD_LIBRARY_PATH", "PATH", "HOME", "IS_SANDBOX"}, path+"HOME=/root\nIS_SANDBOX=1\n"),
		env("of patterns", []string{"*", "DEMESNE_*", "LD_*", "", "=", "=x", "A\x00=1", "B=\x00"}, path+"HOME=/root\nIS_SANDBOX=1\n"),
		env("twice", []string{"A=1", "A=2", "A"}, path+"A=2\nHOME=/root\nIS_SANDBOX=1\n"),
		env("of the loader", []string{"LD_PRELOAD=/evil.so", "GLIBC_TUNABLES=x", "GODEBUG=inittrace=1"}, path+"HOME=/root\nIS_SANDBOX=1\nLD_PRELOAD=/evil.so\n"),
		config("PATH of 1 MiB", fields{"Env": []string{"PATH=" + rep("/bin:", 1<<18)}}, echo, "", "argument list too long"),
		config("PATH of 10,000 directories", fields{"Env": []string{"PATH=" + rep("/nosuch/:", 10_000) + "/bin"}}, []string{"--", "echo", "ran"}, ran, ""),
		config("environment of 6 MiB", fields{"Env": []string{"A=" + rep("x", 6<<20)}}, echo, "", "too long"),
		dir("up", rep("../", 2000), "/\n", ""),
		dir("of 4,096 levels", rep("/d", 4096), "", "file name too long"),
		dir("of a long name", "/"+rep("x", 1<<20), "", "file name too long"),
		dir("with NUL", "/a\x00b", "", "NUL byte"),
		dir("below a file", "/etc/passwd/x", "", "not a directory"),
		dir("below /dev", "/dev/pts/../new", "", "no such file"),
		dir("below /proc", "/proc/1/cwd/../../x", "", "no such file"),
		dir("of a descriptor", "/proc/self/fd/7", "", "no such file"),
		config("command with NUL", fields{"Cmd": []string{"/bin/echo", "a\x00b"}}, nil, "", "NUL byte"),
		config("command of control characters", fields{"Cmd": []string{rep("\x01", 1<<20)}}, nil, "", "file name too long"),
		config("empty command", fields{"Cmd": []string{""}}, nil, "", "no command was given"),
		config("empty entrypoint", fields{"Entrypoint": []string{"", "x"}, "Cmd": []string{"/bin/echo"}}, nil, "", "no command was given"),
		config("empty argument", fields{"Entrypoint": []string{"/bin/echo", "", "ran"}, "Cmd": []string{}}, nil, " ran\n", ""),
		config("command of 1 MiB", fields{"Cmd": []string{"/bin/echo", rep("x", 1<<20)}}, nil, "", "argument list too long"),
		config("command of 100,000 words", fields{"Cmd": words}, nil, strings.TrimSuffix(rep("w ", 100_000), " "), ""),
		config("command that is a directory", fields{"Cmd": []string{"/proc/self/cwd"}}, nil, "", "is a directory"),
		config("stop signal", fields{"StopSignal": "SIGKILL; touch /out/x"}, echo, ran, ""),
		config("volumes, ports, health and triggers", fields{"Volumes": fields{"..": fields{}, "/": fields{}, "/proc": fields{}, "/dev": fields{}, "/etc:/host": fields{}},
			"ExposedPorts": fields{"99999/tcp": fields{}, "": fields{}, "0-65535/x": fields{}}, "Healthcheck": fields{"Test": []string{"CMD-SHELL", "touch /out/x"}, "Interval": -1},
			"ArgsEscaped": true, "OnBuild": []string{"RUN touch /out/x"}, "Shell": []string{"/nosuch"}, "Hostname": "host", "Domainname": "x", "Tty": true, "OpenStdin": true, "MacAddress": "x"},
			shellOf("ls /out; hostname; echo ran"), "demesne\nran\n", ""),
	}
}

// hostileDocuments are malformed or ambiguous.
func hostileDocuments() []configured {
	rep, echo := strings.Repeat, shellOf("echo ran")
	nested := `"x":` + rep("[", 1<<20) + rep("]", 1<<20) + ","
	return []configured{
		{"another system", saying{image: `"os":"linux","OS":"\u001b[2Jwindows",`}, echo, "", "no image for"},
		{"another machine", saying{image: `"ARCHITECTURE":"s390x",`}, echo, "", "no image for"},
		{"history without layers", saying{image: `"history":[{},{},{"created":7}],`}, echo, ran, ""},
		{"two configurations", saying{image: `"config":{"User":"nosuch"},`}, echo, "", "no such user"},
		{"two users", saying{config: `"User":"nosuch","uSER":"root",`}, echo, ran, ""},
		{"a huge number", saying{image: `"created":1e999999,`}, echo, "", "parse configuration"},
		{"a deep configuration", saying{image: nested}, echo, "", "parse configuration"},
		{"a deep manifest", saying{manifest: nested}, echo, "", "manifest"},
		{"an index and a manifest", saying{manifest: `"manifests":[],`}, echo, "", "fields of an index"},
		{"schema 1", saying{manifest: `"schemaVersion":1,`}, echo, "", "schema version"},
		{"a chart", saying{kind: "application/vnd.cncf.helm.config.v1+json"}, echo, "", "unsupported media type"},
		{"a configuration that is an index", saying{kind: "application/vnd.oci.image.index.v1+json"}, echo, "", "unsupported media type"},
		{"a name for the image", saying{index: members(fields{"annotations": fields{"org.opencontainers.image.ref.name": "demesne/debian:latest"}})}, echo, ran, ""},
	}
}

// TestEscapeF33F35Configurations checks hostile configurations (F33, F35). Each one is refused in a line that a person can
// read, or has an effect only in its sandbox.
func TestEscapeF33F35Configurations(t *testing.T) {
	m := newMetadata(t, newGallery(t))
	for _, c := range append(hostileConfigs(), hostileDocuments()...) {
		r := m.do(append([]string{"run", "--pull", "always", "--image", m.write(c.saying)}, c.args...)...)
		last := lastLines(r.stderr)
		refused := (r.code == 125 || r.code == 126) && r.stdout == "" && strings.HasPrefix(last, "demesne: ") && strings.Contains(last, c.says)
		if ok := r.code == 0 && r.stdout == c.out; c.out != "" && !ok || c.out == "" && !refused {
			t.Errorf("%s: exit %d, %.300q, %.600q", c.name, r.code, r.stdout, last)
		}
		if len(r.stderr) > 64<<10 || strings.ContainsAny(r.stderr, "\x00\x1b") || strings.Contains(r.stdout+r.stderr, canary) {
			t.Errorf("%s: %d bytes on stderr: %.300q", c.name, len(r.stderr), r.stderr)
		}
	}
	if left := m.ok("ls", "-q"); left != "" {
		t.Errorf("sandboxes are left: %q", left)
	}
}
