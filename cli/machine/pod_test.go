package machine

import (
	"fmt"
	"testing"

	"demesne/runner"
)

// TestPodLines checks which lines a pod's spec lacks, by the fixes of demesne check.
func TestPodLines(t *testing.T) {
	probes := []runner.Probe{
		{Name: "user namespace", Fix: "securityContext: {seccompProfile: {type: Unconfined}, appArmorProfile: {type: Unconfined}}   # in the pod's spec, at the container"},
		{Name: "fresh /proc", Fix: "securityContext: {procMount: Unmasked}   # in the pod's spec, at the container"},
		{Name: "hostname", Fix: "securityContext: {seccompProfile: {type: Unconfined}}   # in the pod's spec, at the container"},
		{Name: "image", Fix: "securityContext: {runAsUser: 0, capabilities: {add: [SYS_CHROOT, MKNOD]}}   # x"},
		{Name: "kernel", Fix: "runtimeClassName: runc"},
		{Name: "id maps", Fix: "sudo apt install uidmap"},
	}
	want := "[{spec.containers[*].securityContext.seccompProfile {type: Unconfined} [user namespace hostname]}" +
		" {spec.containers[*].securityContext.appArmorProfile {type: Unconfined} [user namespace]}" +
		" {spec.containers[*].securityContext.procMount Unmasked [fresh /proc]}" +
		" {spec.containers[*].securityContext.runAsUser 0 [image]}" +
		" {spec.containers[*].securityContext.capabilities {add: [SYS_CHROOT, MKNOD]} [image]} {spec.runtimeClassName runc [kernel]}]"
	if got := fmt.Sprint(podLines(probes, true)); got != want {
		t.Errorf("%s", got)
	}
	if got := fmt.Sprint(podLines(probes[1:2], false)); got != "[{spec.hostUsers false [fresh /proc]} {spec.containers[*].securityContext.procMount Unmasked [fresh /proc]}]" {
		t.Errorf("%s", got)
	}
}
