package diagnose

import (
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
)

// plain describes a machine without restrictions.
var plain = Facts{MaxUserns: "10000", User: "ann", Newuidmap: true, SubIDs: true, FreeSubID: 100000}

func with(change func(*Facts)) Facts {
	f := plain
	change(&f)
	return f
}

func TestDiagnoses(t *testing.T) {
	eperm := fmt.Errorf("unshare user namespace: %w", syscall.EPERM)
	ubuntu := func(f *Facts) { f.AppArmor, f.Profile, f.Runner = "1", "unconfined", "/opt/demesne runner" }
	for name, c := range map[string]struct {
		diagnose func(error, Facts) (string, string)
		err      error
		facts    Facts
		why, fix string // parts of the answer; empty fix: no fix
	}{
		"nothing wrong":       {Userns, nil, plain, "", ""},
		"unknown":             {Userns, eperm, plain, "unshare user namespace: operation not permitted", ""},
		"unknown, no facts":   {Userns, errors.New("odd"), with(func(f *Facts) {}), "odd", ""},
		"kernel without":      {Userns, syscall.EINVAL, plain, "CONFIG_USER_NS", ""},
		"none allowed":        {Userns, syscall.ENOSPC, with(func(f *Facts) { f.MaxUserns = "0" }), "is 0", "sudo sysctl -w user.max_user_namespaces=15000"},
		"used up":             {Userns, syscall.ENOSPC, with(func(f *Facts) { f.MaxUserns = "20000" }), "(20000) is used up", "user.max_user_namespaces=40000"},
		"too deep, old":       {Userns, syscall.EUSERS, plain, "32 deep", "user.max_user_namespaces=20000"},
		"debian":              {Userns, eperm, with(func(f *Facts) { f.UsernsClone = "0" }), "unprivileged_userns_clone is 0", "sudo sysctl -w kernel.unprivileged_userns_clone=1"},
		"debian, allowed":     {Userns, eperm, with(func(f *Facts) { f.UsernsClone = "1" }), "not permitted", ""},
		"unmapped":            {Userns, eperm, with(func(f *Facts) { f.Unmapped = true }), "not mapped", "uid_map"},
		"ubuntu":              {Userns, eperm, with(ubuntu), "AppArmor", "'/opt/demesne runner' | sudo tee /etc/apparmor.d/demesne && sudo apparmor_parser -r"},
		"ubuntu, both ways":   {Userns, syscall.EACCES, with(ubuntu), "AppArmor", "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"},
		"ubuntu, in a filter": {Userns, eperm, with(func(f *Facts) { ubuntu(f); f.Seccomp = true }), "AppArmor", "apparmor_parser"},
		"ubuntu, root":        {Userns, eperm, with(func(f *Facts) { ubuntu(f); f.Privileged = true }), "not permitted", ""},
		"docker on ubuntu": {Userns, eperm, with(func(f *Facts) {
			ubuntu(f)
			f.Seccomp, f.Container, f.Profile = true, Docker, "docker-default (enforce)"
		}), "seccomp filter forbids user namespaces in this docker container", "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined …"},
		"docker":      {Userns, eperm, with(func(f *Facts) { f.Seccomp, f.Container = true, Docker }), "in this docker container", "docker run --security-opt seccomp=unconfined …"},
		"podman":      {Userns, eperm, with(func(f *Facts) { f.Seccomp, f.Container = true, Podman }), "podman", "podman run --security-opt seccomp=unconfined …"},
		"kubernetes":  {Userns, eperm, with(func(f *Facts) { f.Seccomp, f.Container = true, Kubernetes }), "in this Kubernetes pod", "securityContext: {seccompProfile: {type: Unconfined}}"},
		"some filter": {Userns, eperm, with(func(f *Facts) { f.Seccomp = true }), "seccomp", "RestrictNamespaces=no"},
		"systemd unit": {Userns, eperm, with(func(f *Facts) { f.Seccomp, f.Unit = true, "ci.service" }), "in the unit ci.service",
			"sudo mkdir -p /etc/systemd/system/ci.service.d && printf '[Service]\\nRestrictNamespaces=no\\nSystemCallFilter=\\n' | sudo tee /etc/systemd/system/ci.service.d/demesne.conf && sudo systemctl daemon-reload"},
		"user's unit": {Userns, eperm, with(func(f *Facts) { f.Seccomp, f.Unit, f.UserUnit = true, "ci.service", true }), "in the unit ci.service",
			"tee ~/.config/systemd/user/ci.service.d/demesne.conf && systemctl --user daemon-reload"},
		"profile without userns": {Userns, syscall.EACCES, with(func(f *Facts) { f.Profile = "ci (enforce)" }), "AppArmor profile ci does not allow", "userns, mount"},
		"AppArmor, no sysctl":    {Userns, syscall.EACCES, with(func(f *Facts) { f.LSM = "capability,apparmor" }), "AppArmor does not allow", "apparmor_parser"},
		"SELinux":                {Userns, syscall.EACCES, with(func(f *Facts) { f.SELinux = "system_u:system_r:container_t:s0:c1,c2"; f.Container = Podman }), "container_t", "podman run --security-opt label=disable …"},
		"gvisor":                 {Userns, syscall.EINVAL, with(func(f *Facts) { f.GVisor = true }), "gVisor", "docker run --runtime=runc"},
		"gvisor pod":             {Userns, syscall.EINVAL, with(func(f *Facts) { f.GVisor, f.Container = true, Kubernetes }), "gVisor", "runtimeClassName: runc"},

		"docker, only AppArmor": {Mounts, syscall.EACCES, with(func(f *Facts) { f.Container, f.Profile = Docker, "docker-default (enforce)" }),
			"AppArmor profile docker-default forbids mounts in this docker container", "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined …"},
		"pod, only AppArmor": {Mounts, syscall.EACCES, with(func(f *Facts) { f.Container, f.Profile = Kubernetes, "cri-containerd.apparmor.d (enforce)" }),
			"forbids mounts in this Kubernetes pod", "securityContext: {appArmorProfile: {type: Unconfined}}"},
		"pod, AppArmor and a filter": {Mounts, syscall.EACCES, with(func(f *Facts) {
			f.Seccomp, f.Container, f.Profile = true, Kubernetes, "cri-containerd.apparmor.d (enforce)"
		}),
			"forbids mounts in this Kubernetes pod", "securityContext: {seccompProfile: {type: Unconfined}, appArmorProfile: {type: Unconfined}}"},
		"unit's mounts":  {Mounts, eperm, with(func(f *Facts) { f.Seccomp, f.Unit = true, "ci.service" }), "filter forbids mounts in the unit", "SystemCallFilter="},
		"SELinux, mount": {Mounts, syscall.EACCES, with(func(f *Facts) { f.SELinux, f.Container = "u:r:container_t:s0", Docker }), "SELinux", "label=disable"},
		"unknown module": {Mounts, syscall.EACCES, plain, "security module", "apparmor=unconfined"},

		"read-only proc": {Userns, syscall.EROFS, plain, "read-only", "remount,rw /proc"},

		"no newuidmap":  {IDMaps, errors.New("x"), with(func(f *Facts) { f.Newuidmap = false }), "not installed", "sudo apt install uidmap"},
		"no range":      {IDMaps, errors.New("x"), with(func(f *Facts) { f.SubIDs = false }), "no subordinate ids", "sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 ann"},
		"range taken":   {IDMaps, errors.New("x"), with(func(f *Facts) { f.SubIDs, f.FreeSubID = false, 165536 }), "no subordinate ids", "--add-subuids 165536-231071"},
		"no new privs":  {IDMaps, errors.New("x"), with(func(f *Facts) { f.NoNewPrivs = true }), "no_new_privs", "NoNewPrivileges=no"},
		"nnp, docker":   {IDMaps, errors.New("x"), with(func(f *Facts) { f.NoNewPrivs, f.Container = true, Docker }), "no_new_privs", "no-new-privileges=false"},
		"no passwd":     {IDMaps, errors.New("x"), with(func(f *Facts) { f.User = "$USER" }), "/etc/passwd", "sudo tee -a /etc/passwd"},
		"other failure": {IDMaps, errors.New("newuidmap: write failed"), plain, "newuidmap: write failed", "chmod u+s"},

		"no netns":    {Netns, syscall.ENOSPC, plain, "max_net_namespaces", "sudo sysctl -w user.max_net_namespaces=15000"},
		"netns, user": {Netns, eperm, with(ubuntu), "AppArmor", "apparmor_parser"},

		"masked proc":     {Proc, syscall.EPERM, with(func(f *Facts) { f.Container = Docker }), "masked in this docker", "systempaths=unconfined"},
		"masked, podman":  {Proc, syscall.EPERM, with(func(f *Facts) { f.Container = Podman }), "masked", "unmask=ALL"},
		"masked, pod":     {Proc, syscall.EPERM, with(func(f *Facts) { f.Container = Kubernetes }), "masked", "procMount: Unmasked"},
		"hostname":        {Hostname, syscall.EPERM, with(func(f *Facts) { f.Seccomp, f.Container = true, Podman }), "sethostname", "podman run"},
		"no overlay":      {Overlay, syscall.ENODEV, plain, "no overlayfs", "sudo modprobe overlay"},
		"overlay, EIO":    {Overlay, syscall.EIO, plain, "user.* attributes", "XDG_RUNTIME_DIR="},
		"overlay on one":  {Overlay, syscall.EINVAL, plain, "upper", "HOME="},
		"landlock off":    {Landlock, syscall.EOPNOTSUPP, with(func(f *Facts) { f.LSM = "capability,yama" }), "boot", "lsm=landlock,capability,yama"},
		"landlock old":    {Landlock, syscall.ENOSYS, plain, "5.13", ""},
		"landlock denied": {Landlock, syscall.ENOSYS, with(func(f *Facts) { f.Seccomp = true }), "filter forbids Landlock", "seccomp=unconfined"},
		"no filters":      {Seccomp, syscall.EINVAL, plain, "CONFIG_SECCOMP_FILTER", ""},
		"no netlink": {func(err error, f Facts) (string, string) { return Egress("namespaces", err, f) }, syscall.EAFNOSUPPORT, with(func(f *Facts) { f.Seccomp, f.Unit = true, "ci.service" }),
			"filter refuses AF_NETLINK sockets in the unit", "RestrictAddressFamilies=AF_NETLINK"},
		"no sockets": {Sockets, eperm, with(func(f *Facts) { f.Unit = "ci.service" }), "AF_UNIX sockets in the unit", "RestrictAddressFamilies=AF_UNIX"},
		"no tproxy": {func(err error, f Facts) (string, string) { return Egress("tproxy rule", err, f) }, syscall.ENOENT, plain,
			"not loaded: tproxy rule: no such file", "sudo modprobe -a veth nf_tables nft_tproxy"},
	} {
		why, fix := c.diagnose(c.err, c.facts)
		if !strings.Contains(why, c.why) || !strings.Contains(fix, c.fix) || (c.fix == "") != (fix == "") {
			t.Errorf("%s: %q, %q; want %q, %q", name, why, fix, c.why, c.fix)
		}
	}
}

// TestAppArmorProfile runs the part of the fix that prints the profile.
func TestAppArmorProfile(t *testing.T) {
	fix := Facts{Runner: "/opt/it's here/demesne-runner"}.appArmorFix()
	text, _, _ := strings.Cut(fix, "| sudo")
	got, err := exec.Command("sh", "-c", text).CombinedOutput()
	want := "abi <abi/4.0>,\nprofile demesne \"/opt/it's here/demesne-runner\" flags=(unconfined) {\n  userns,\n}\n"
	if err != nil || string(got) != want {
		t.Errorf("%v\n%s", err, got)
	}
	if strings.Contains(fix, "\n") {
		t.Error("the fix is more than a line")
	}
}

func TestRead(t *testing.T) {
	t.Setenv("PATH", "/bin:/usr/bin")
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	root := fstest.MapFS{
		"proc/self/status":                                      file("Name:\tx\nUid:\t1000\t1000\t1000\t1000\nGid:\t5\t5\t5\t5\nCapEff:\t0000000000200000\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n"),
		"proc/self/uid_map":                                     file("         0       1000          1\n"),
		"proc/self/gid_map":                                     file("0 0 4294967295\n"),
		"proc/sys/user/max_user_namespaces":                     file("123\n"),
		"proc/sys/kernel/unprivileged_userns_clone":             file("0\n"),
		"proc/sys/kernel/apparmor_restrict_unprivileged_userns": file("1\n"),
		"proc/self/attr/apparmor/current":                       file("unconfined\n\x00"),
		"sys/kernel/security/lsm":                               file("capability,apparmor"),
		".dockerenv":                                            file(""),
		"usr/bin/newuidmap":                                     file(""),
		"usr/bin/newgidmap":                                     file(""),
		"etc/subuid":                                            file("bob:100000:65536\nann:165536:65536\n# odd\n"),
		"etc/subgid":                                            file("bob:100000:65536\n"),
	}
	if f := read(root); f.Container != NoContainer {
		t.Errorf("a mark, but no overlay: %q", f.Container)
	}
	root["proc/self/mountinfo"] = file("21 1 0:20 / / rw - rootfs rootfs rw\n22 21 0:21 / / rw shared:1 - overlay overlay rw,lowerdir=x\n23 22 0:22 / /proc rw - proc proc rw\n")
	f := read(root)
	f.User = "ann"
	readSubIDs(root, &f, "1000")
	want := Facts{
		User: "ann", Container: Docker, Seccomp: true, NoNewPrivs: true, Privileged: true, Unmapped: true,
		NoUserns: true, MaxUserns: "123", UsernsClone: "0", AppArmor: "1", Profile: "unconfined",
		LSM: "capability,apparmor", Newuidmap: true, FreeSubID: 231072,
	}
	if f != want {
		t.Errorf("got  %+v\nwant %+v", f, want)
	}
	if got := read(fstest.MapFS{}); got != (Facts{}) {
		t.Errorf("an empty machine: %+v", got)
	}
}

func TestReadHere(t *testing.T) {
	f := Read("/x/demesne-runner")
	if f.Runner != "/x/demesne-runner" || f.User == "" || f.FreeSubID < 100000 {
		t.Errorf("%+v", f)
	}
}

// TestFixesAreLines checks that each fix starts with a word that a shell or a pod's specification understands.
func TestFixesAreLines(t *testing.T) {
	line := regexp.MustCompile(`^(([A-Z_]+=\S* )*(sudo|docker|podman|echo|printf|demesne|systemd-run|mkdir)|securityContext:|runtimeClassName:) `)
	for name, rules := range map[string][]rule{
		"userns": usernsRules(), "mounts": mountRules(), "id maps": idMapRules(), "netns": netnsRules(), "proc": procRules(), "hostname": hostnameRules(),
		"overlay": overlayRules(), "egress": egressRules(), "landlock": landlockRules(), "seccomp": seccompRules(), "sockets": socketRules(),
	} {
		for i, r := range rules {
			for _, in := range []Container{NoContainer, Docker, Podman, Kubernetes} {
				for _, f := range []Facts{{Container: in}, {Container: in, Unit: "x.service"}, {Container: in, Unit: "x.service", UserUnit: true}} {
					if fix := r.fix(f); fix != "" && !line.MatchString(fix) || strings.Contains(fix, "\n") {
						t.Errorf("%s, rule %d, in %+v: not a line to type: %q", name, i, f, fix)
					}
				}
			}
		}
	}
}

// TestTooOld checks which releases lack system calls that demesne needs.
func TestTooOld(t *testing.T) {
	for release, want := range map[string]string{
		"5.10.0-28-amd64": "Linux 5.13 or later is needed; this is 5.10", "4.18.0-553.el8.x86_64": "Linux 5.13 or later is needed; this is 4.18",
		"5.13.0": "", "5.14.0-427.el9": "", "6.1.0": "", "6.18.44-x": "", "": "", "odd": "",
	} {
		if got := (Facts{Release: release}).TooOld(); got != want {
			t.Errorf("%q: %q, want %q", release, got, want)
		}
	}
	if why, _ := Landlock(syscall.ENOSYS, Facts{Release: "5.10.0"}); !strings.Contains(why, "5.13 or later") {
		t.Error(why)
	}
}

// TestEnvironments checks how containers, units and gVisor are detected.
func TestEnvironments(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	for _, c := range []struct {
		name string
		root fstest.MapFS
		want Facts
	}{
		{"pod without a service account", fstest.MapFS{"etc/hosts": file("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n")}, Facts{Container: Kubernetes}},
		{"unit", fstest.MapFS{"proc/self/cgroup": file("0::/system.slice/ci.service\n")}, Facts{Unit: "ci.service"}},
		{"group of a unit", fstest.MapFS{"proc/self/cgroup": file("0::/system.slice/ci.service/payload\n")}, Facts{Unit: "ci.service"}},
		{"unit on v1", fstest.MapFS{"proc/self/cgroup": file("4:memory:/x\n1:name=systemd:/system.slice/ci.service\n")}, Facts{Unit: "ci.service"}},
		{"user's unit", fstest.MapFS{"proc/self/cgroup": file("0::/user.slice/user-1000.slice/user@1000.service/app.slice/ci.service\n")}, Facts{Unit: "ci.service", UserUnit: true}},
		{"login", fstest.MapFS{"proc/self/cgroup": file("0::/user.slice/user-1000.slice/session-3.scope\n")}, Facts{}},
		{"terminal", fstest.MapFS{"proc/self/cgroup": file("0::/user.slice/user-1000.slice/user@1000.service/app.slice/vte.scope\n")}, Facts{}},
		{"gVisor", fstest.MapFS{"proc/version": file("Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n")}, Facts{GVisor: true}},
		{"SELinux", fstest.MapFS{"proc/self/attr/current": file("unconfined_u:unconfined_r:unconfined_t:s0-s0:c0.c1023\x00")}, Facts{SELinux: "unconfined_u:unconfined_r:unconfined_t:s0-s0:c0.c1023"}},
		{"AppArmor", fstest.MapFS{"proc/self/attr/current": file("docker-default (enforce)\n")}, Facts{}},
	} {
		if got := read(c.root); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
