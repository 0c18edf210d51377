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
		}), "seccomp filter forbids user namespaces in this docker container", "docker run --security-opt seccomp=unconfined …"},
		"docker":       {Userns, eperm, with(func(f *Facts) { f.Seccomp, f.Container = true, Docker }), "in this docker container", "docker run --security-opt seccomp=unconfined …"},
		"podman":       {Userns, eperm, with(func(f *Facts) { f.Seccomp, f.Container = true, Podman }), "podman", "podman run --security-opt seccomp=unconfined …"},
		"kubernetes":   {Userns, eperm, with(func(f *Facts) { f.Seccomp, f.Container = true, Kubernetes }), "kubernetes", "seccompProfile: {type: Unconfined}"},
		"systemd unit": {Userns, eperm, with(func(f *Facts) { f.Seccomp = true }), "seccomp", "RestrictNamespaces=no"},

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
	fix := appArmorFix(Facts{Runner: "/opt/it's here/demesne-runner"})
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
	line := regexp.MustCompile(`^(([A-Z_]+=\S* )*(sudo|docker|podman|echo|printf|demesne|systemd-run)|securityContext:) `)
	for name, rules := range map[string][]rule{
		"userns": usernsRules, "id maps": idMapRules, "netns": netnsRules, "proc": procRules, "hostname": hostnameRules,
		"overlay": overlayRules, "egress": egressRules, "landlock": landlockRules, "seccomp": seccompRules,
	} {
		for i, r := range rules {
			for _, in := range []Container{NoContainer, Docker, Podman, Kubernetes} {
				if fix := r.fix(Facts{Container: in}); fix != "" && !line.MatchString(fix) {
					t.Errorf("%s, rule %d, in %q: not a line to type: %q", name, i, in, fix)
				}
			}
		}
	}
}
