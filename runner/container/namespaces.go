package container

import (
	"fmt"
	"os"
	"strings"

	"demesne/runner"
	"demesne/runner/api"
)

// Namespaces compares PID 1's namespaces with the runner's, by the kernel's identifiers. PID 1's user namespace
// is a child of the runner's, which is a child of the host's.
func Namespaces(pid int) []runner.Layer {
	var layers []runner.Layer
	for _, ns := range []struct{ file, name string }{
		{"user", "user-namespace"}, {"mnt", "mount-namespace"}, {"pid", "pid-namespace"}, {"net", "network-namespace"},
		{"ipc", "ipc-namespace"}, {"uts", "uts-namespace"}, {"cgroup", "cgroup-namespace"},
	} {
		l := runner.Layer{Name: ns.name, Status: runner.Held}
		theirs, err1 := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, ns.file))
		ours, err2 := os.Readlink("/proc/self/ns/" + ns.file)
		switch {
		case err1 != nil:
			l.Status, l.Why = runner.Missing, err1.Error()
		case err2 != nil:
			l.Status, l.Why = runner.Missing, err2.Error()
		case theirs == ours:
			l.Status, l.Why = runner.Missing, "it is the runner's"
		default:
			l.Detail = theirs
		}
		layers = append(layers, l)
	}
	return layers
}

// minimalLayers lists the namespaces that a minimal sandbox lacks, and the substitutes.
func minimalLayers(b api.Boot, egress bool) []runner.Layer {
	var layers []runner.Layer
	stand := map[string]string{
		"mount":   "Landlock rules on the host's own tree",
		"network": "no sockets but socketpairs, by seccomp: servers need a network, such as --allow-domain NAME",
		"pid":     "signals and ptrace confined by Landlock; the process list is visible",
	}
	if egress {
		stand["network"] = "only socketpairs, and TCP sockets that the runner makes and connects, by seccomp"
	}
	for _, name := range strings.Fields("user mount pid network ipc uts cgroup") {
		layers = append(layers, runner.Layer{
			Name: name + "-namespace", Status: runner.Missing, Detail: stand[name], Why: b.ModeWhy, Fix: b.ModeFix,
		})
	}
	return layers
}

// placesLayer says whether a sandbox without a mount namespace has /in, /out and /workspace.
func placesLayer(unplaced error) runner.Layer {
	l := runner.Layer{Name: "paths", Status: runner.Held, Detail: "/in, /out and /workspace are links to this sandbox's directories"}
	if unplaced != nil {
		l.Status, l.Why = runner.Missing, unplaced.Error()
		l.Detail = "$DEMESNE_IN, $DEMESNE_OUT and $DEMESNE_WORKSPACE name the directories; a start in /in, /out or /workspace leads there"
		l.Fix = "mkdir -p /run/demesne && ln -s /run/demesne/in /run/demesne/out /run/demesne/workspace /   # as root, the directory for the user of demesne"
	}
	return l
}

// minimalLimits corrects the limits of a sandbox without namespaces (see minimal.go in runner/sandbox).
func minimalLimits(l []runner.LimitReceipt) []runner.LimitReceipt {
	for i := range l {
		if strings.HasPrefix(l[i].Mechanism, "RLIMIT_NPROC") {
			l[i].Status, l[i].Mechanism = runner.Degraded, "watchdog"
			l[i].Why = "without a user namespace RLIMIT_NPROC would count the user's other processes"
		}
		if what, ok := strings.CutPrefix(l[i].Mechanism, "tmpfs size"); ok { // there is no tmpfs
			if l[i].Mechanism = strings.TrimLeft(what, ";, "); l[i].Status != runner.Held {
				l[i].Mechanism, l[i].Fix = "watchdog on all that it can write to, RLIMIT_FSIZE", ""
			}
		}
	}
	return l
}
