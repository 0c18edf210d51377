package integration

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// kubernetesClaim runs the controller of agent-sandbox. A claim gets a pod of examples/kubernetes/agent-sandbox, which makes sandboxes of
// demesne, and ends with it.
func kubernetesClaim(t *testing.T, c *cluster) {
	built := strings.TrimSuffix(kubernetesPrograms(), "/bin") + "/agent-sandbox/crds"
	c.kubectl("create", "-f", built)
	c.kubectl("wait", "--for=condition=Established", "-f", built)
	log := c.dir + "/agent-sandbox.log"
	c.root("bash", "-c", fmt.Sprintf("KUBECONFIG=%s/admin.conf %s/agent-sandbox-controller --extensions --leader-elect=false --enable-webhook=false >%s 2>&1 </dev/null & echo $! >%[1]s/agent-sandbox.pid",
		c.state, kubernetesPrograms(), log))
	defer c.root("bash", "-c", "kill $(cat "+c.state+"/agent-sandbox.pid)")
	defer func() {
		if t.Failed() {
			t.Log(regexp.MustCompile(`.*"level":"error".*`).FindAllString(readFile(t, log), -1))
		}
	}()
	const token = "e2b_00112233445566778899aabbccddeeff00112233"
	c.kubectl("create", "namespace", "claims")
	c.kubectl("-n", "claims", "create", "secret", "generic", "demesne", "--from-literal=token="+token)
	c.apply("agent-sandbox", "-n", "claims", "--validate=strict")
	get := func(what, path string) string {
		out, _ := c.admin("-n", "claims", "get", what, "-o", "jsonpath="+path).Output()
		return string(out)
	}
	eventually(t, "a pod that waits", func() bool { return get("sandboxwarmpool/demesne", "{.status.readyReplicas}") == "1" })
	waiting := get("pods", "{.items[*].metadata.name}")
	c.kubectl("-n", "claims", "create", "-f", c.file("claim.yaml", "apiVersion: extensions.agents.x-k8s.io/v1beta1\nkind: SandboxClaim\nmetadata: {name: mine}\nspec: {warmPoolRef: {name: demesne}}\n", 0o644))
	c.kubectl("-n", "claims", "wait", "--for=condition=Ready", "--timeout=60s", "sandboxclaim/mine")
	pod := get("sandboxclaim/mine", "{.status.sandbox.name}")
	at := "http://" + get("sandboxclaim/mine", "{.status.sandbox.podIPs[0]}") + ":7480/v1/sandboxes"
	if pod == "" || pod != waiting {
		t.Errorf("the claim has pod %q, and %q waited", pod, waiting)
	}
	call := func(path string, args ...string) string {
		t.Helper()
		r := c.finish(c.command("/usr/bin/curl", append([]string{"-s", "-H", "Authorization: Bearer " + token, "-H", "Host: demesne", "-H", "Content-Type: application/json", at + path}, args...)...))
		if r.code != 0 {
			t.Fatalf("%s %q: %+v", path, args, r)
		}
		return r.stdout
	}
	const sandboxes = 8
	for n := range sandboxes {
		var made struct{ ID string }
		text := call("", "-d", "{}")
		if json.Unmarshal([]byte(text), &made) != nil || made.ID == "" {
			t.Fatalf("%d: %s", n, text)
		}
		if text = call("/"+made.ID+"/exec", "-d", `{"command": "test ! -e f && echo $((6 * 7)) > f && cat f"}`); !strings.Contains(text, `"text":"42\n"`) || !strings.Contains(text, `"exit_code":0`) {
			t.Errorf("%d: %s", n, text)
		}
	}
	if text := call(""); strings.Count(text, `"state":"running"`) != sandboxes {
		t.Errorf("%s", text)
	}
	if level := c.kubectl("-n", "claims", "exec", pod, "--", "demesne", "check", "--pod"); level != "the spec of the pod lacks nothing\n" {
		t.Errorf("%s", level)
	}
	if out := c.kubectl("-n", "claims", "exec", pod, "--", "demesne", "ls", "-q"); strings.Count(out, "\n") != sandboxes {
		t.Errorf("%s", out)
	}
	eventually(t, "another pod that waits", func() bool { return get("sandboxwarmpool/demesne", "{.status.readyReplicas}") == "1" })
	c.kubectl("-n", "claims", "delete", "sandboxclaim", "mine")
	eventually(t, "the end of the claim's pod", func() bool { return get("pod/"+pod, "{.metadata.name}")+get("sandbox/"+pod, "{.metadata.name}") == "" })
	if left := get("pods", "{.items[*].status.phase}"); left != "Running" { // the one that waits for the next claim
		t.Errorf("pods: %q", left)
	}
	c.kubectl("-n", "claims", "delete", "sandboxwarmpool,sandboxtemplate", "--all")
	eventually(t, "nothing left", func() bool {
		return c.kubectl("-n", "claims", "get", "pods,services,networkpolicies,sandboxes,sandboxclaims", "-o", "name") == ""
	})
}
