package diagnose

import (
	"io/fs"
	"path"
	"strings"
)

// setting is a restriction that environments have, and how each environment lifts it.
type setting struct {
	docker string // an option of docker run; podman run has the same one unless podman is set
	podman string
	pod    string // a field of a container's securityContext
	unit   string // a setting of a systemd unit
}

var (
	seccompOff   = setting{docker: "--security-opt seccomp=unconfined", pod: "seccompProfile: {type: Unconfined}", unit: "SystemCallFilter="}
	namespacesOn = setting{unit: "RestrictNamespaces=no"}
	apparmorOff  = setting{docker: "--security-opt apparmor=unconfined", pod: "appArmorProfile: {type: Unconfined}", unit: "AppArmorProfile="}
	selinuxOff   = setting{docker: "--security-opt label=disable", pod: "seLinuxOptions: {type: spc_t}", unit: "SELinuxContext="}
	gainRights   = setting{docker: "--security-opt no-new-privileges=false", pod: "allowPrivilegeEscalation: true", unit: "NoNewPrivileges=no"}
	unixOn       = setting{docker: "--security-opt seccomp=unconfined", pod: "seccompProfile: {type: Unconfined}", unit: "RestrictAddressFamilies=AF_UNIX"}
	netlinkOn    = setting{docker: "--security-opt seccomp=unconfined", pod: "seccompProfile: {type: Unconfined}", unit: "RestrictAddressFamilies=AF_NETLINK"}
	procWhole    = setting{docker: "--security-opt systempaths=unconfined", podman: "--security-opt unmask=ALL", pod: "procMount: Unmasked", unit: "ProcSubset=all"}
)

// Chroot explains why an image cannot be used without namespaces, which why and fix are about. lacks names what the process
// lacks for the copy of an image.
func Chroot(lacks []string, why, fix string, f Facts) (text, hint string) {
	text = "this machine forbids namespaces, and the copy of an image needs " + strings.Join(lacks, " and ") + ": " + why
	set := setting{docker: "--user 0", pod: "runAsUser: 0, runAsNonRoot: false"}
	var add []string
	byContainer := f.Container != NoContainer // its options give what is missing
	for _, name := range lacks {
		if name, ok := strings.CutPrefix(name, "CAP_"); ok {
			set.docker += " --cap-add " + name
			add = append(add, name)
		} else if name != "uid 0" {
			byContainer = false
		}
	}
	if len(add) > 0 {
		set.pod += ", capabilities: {add: [" + strings.Join(add, ", ") + "]}"
	}
	if !byContainer {
		return text, fix
	}
	return text, f.lift(set)
}

// lift returns the text that lifts settings in this environment: a line to type, or a line of a pod's spec. Outside of
// the environments it knows, it names both Docker's options and systemd's settings.
func (f Facts) lift(all ...setting) string {
	var docker, podman, pod, unit []string
	add := func(to *[]string, text string) {
		if text != "" {
			*to = append(*to, text)
		}
	}
	for _, s := range all {
		add(&docker, s.docker)
		if s.podman == "" {
			s.podman = s.docker
		}
		add(&podman, s.podman)
		add(&pod, s.pod)
		add(&unit, s.unit)
	}
	switch {
	case f.Container == Docker && len(docker) > 0:
		return "docker run " + strings.Join(docker, " ") + " …"
	case f.Container == Podman && len(podman) > 0:
		return "podman run " + strings.Join(podman, " ") + " …"
	case f.Container == Kubernetes && len(pod) > 0:
		return "securityContext: {" + strings.Join(pod, ", ") + "}   # in the pod's spec, at the container"
	case f.Unit != "" && len(unit) > 0:
		return f.dropIn(unit)
	case len(docker) == 0:
		return "systemd-run --user --pty demesne …   # in a systemd unit: " + strings.Join(unit, ", ")
	}
	return "docker run " + strings.Join(docker, " ") + " …   # in a container; in a systemd unit: " + strings.Join(unit, ", ")
}

// dropIn returns the command that adds settings to the unit.
func (f Facts) dropIn(settings []string) string {
	dir, tee, ctl := "/etc/systemd/system/", "sudo tee", "sudo systemctl"
	if f.UserUnit {
		dir, tee, ctl = "~/.config/systemd/user/", "tee", "systemctl --user"
	}
	dir += f.Unit + ".d"
	mkdir := strings.TrimSuffix(tee, "tee") + "mkdir -p " + dir
	return mkdir + " && printf '[Service]\\n" + strings.Join(settings, "\\n") + "\\n' | " + tee + " " + dir + "/demesne.conf && " + ctl + " daemon-reload && " + ctl + " restart " + f.Unit
}

// filterFix starts the environment without its seccomp filter, and without the security module that would refuse the
// same next.
func (f Facts) filterFix() string {
	all := []setting{seccompOff}
	if f.Container == NoContainer {
		all = append([]setting{namespacesOn}, all...)
	}
	return f.lift(append(all, f.modules()...)...)
}

// modules returns the settings of the security modules that confine this process.
func (f Facts) modules() (all []setting) {
	if f.confined() {
		all = append(all, apparmorOff)
	}
	if f.SELinux != "" && !strings.Contains(f.SELinux, "unconfined_t") && !strings.Contains(f.SELinux, "spc_t") {
		all = append(all, selinuxOff)
	}
	return all
}

// confined reports whether an AppArmor profile confines this process.
func (f Facts) confined() bool {
	return f.Profile != "" && !strings.HasPrefix(f.Profile, "unconfined") && !strings.HasPrefix(f.Profile, "unprivileged_userns") &&
		!strings.HasSuffix(f.Profile, "(unconfined)")
}

// container trusts a marker file only if / is an overlay. The file also remains in an image that became a
// virtual machine's disk, and it is visible in a sandbox that sees the host's root. The kubelet writes a pod's hosts
// file, also for a pod without a service account.
func container(root fs.FS) Container {
	hosts, _ := fs.ReadFile(root, "etc/hosts")
	if strings.HasPrefix(string(hosts), "# Kubernetes-managed hosts file") {
		return Kubernetes
	}
	if !strings.Contains(rootMount(root), "overlay") {
		return NoContainer
	}
	for _, mark := range []struct {
		file string
		kind Container
	}{
		{"var/run/secrets/kubernetes.io", Kubernetes},
		{"run/secrets/kubernetes.io", Kubernetes},
		{".dockerenv", Docker},
		{"run/.containerenv", Podman},
	} {
		if exists(root, mark.file) {
			return mark.kind
		}
	}
	return NoContainer
}

// unit returns the systemd service that this process belongs to, and whether the user's own systemd manages it. A login
// session is a scope, not a service.
func unit(root fs.FS) (name string, user bool) {
	groups, _ := fs.ReadFile(root, "proc/self/cgroup")
	for l := range strings.Lines(string(groups)) {
		fields := strings.SplitN(strings.TrimSpace(l), ":", 3)
		if len(fields) != 3 || fields[1] != "" && fields[1] != "name=systemd" {
			continue
		}
		// Below its unit a service may have groups of its own.
		for dir := fields[2]; dir != "/" && dir != "."; dir = path.Dir(dir) {
			last := path.Base(dir)
			switch {
			case strings.HasSuffix(last, ".scope"), strings.HasPrefix(last, "user@"):
				return "", false
			case strings.HasSuffix(last, ".service"):
				return last, strings.Contains(path.Dir(dir), "user@")
			}
		}
	}
	return "", false
}

// selinux returns the label of this process if it has the form of SELinux's: user:role:type:level.
func selinux(root fs.FS) string {
	if label := line(root, "proc/self/attr/current"); strings.Count(label, ":") >= 2 {
		return label
	}
	return ""
}

// gvisor reports whether gVisor is the kernel. Its version text is a constant of its source.
func gvisor(root fs.FS) bool {
	return strings.Contains(line(root, "proc/version"), "#1 SMP Sun Jan 10 15:06:54 PST 2016")
}
