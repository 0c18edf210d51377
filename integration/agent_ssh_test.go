package integration

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// sshAgent starts an agent of this machine that has one key, and returns the file of its public key.
func (b *box) sshAgent() string {
	b.Helper()
	for _, name := range []string{"ssh-agent", "ssh-add", "ssh-keygen"} {
		program(b, name)
	}
	key, socket := b.dir+"/id", b.dir+"/agent.sock"
	agent := exec.Command("ssh-agent", "-D", "-a", socket)
	out, err := agent.StdoutPipe()
	if err == nil {
		err = agent.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { agent.Process.Kill(); agent.Wait() })
	bufio.NewReader(out).ReadString('\n') // it listens
	b.extra = append(b.extra, "SSH_AUTH_SOCK="+socket)
	b.host(b.dir, "ssh-keygen -q -t ed25519 -N '' -C mine -f "+key+" && ssh-add -q "+key)
	return key + ".pub"
}

// TestAgentSSHAgent checks with OpenSSH's programs that --ssh-agent ask lists keys, that the user decides on the terminal about
// each signature, that nothing else passes, and that no terminal means no.
func TestAgentSSHAgent(t *testing.T) {
	b, _, dir := newScriptBox(t)
	pub := b.sshAgent()
	key, err := os.ReadFile(pub)
	if err != nil {
		t.Fatal(err)
	}
	b.file("h/proj/key.pub", string(key), 0o600)
	const sign = "echo text > f; ssh-keygen -q -Y sign -n git -f key.pub f"
	term := b.agentTerminal(dir, "--ssh-agent", "ask", "script-agent",
		"ssh-add -L; ssh-add -D; "+sign+" && echo signed; mv f.sig first; "+sign+" || echo refused; ssh-add -L; echo ended")
	for i, answer := range []string{"y", "n"} {
		eventually(t, "the question", func() bool {
			return strings.Count(term.screen(), `sign a file or commit, for "git" with key SHA256:`) > i
		})
		time.Sleep(400 * time.Millisecond) // keys within 300 ms of a question are ignored
		term.typ(answer + "\r")
		term.expect(map[string]string{"y": "signed", "n": "refused"}[answer])
	}
	term.expect("ended")
	term.wait()
	if n := strings.Count(term.screen(), strings.TrimSpace(string(key))); n != 2 {
		t.Errorf("the key was listed %d times: %q", n, term.screen())
	}
	b.host(dir, `ssh-keygen -q -Y check-novalidate -n git -s first < f`)
	if outside := b.host(dir, "ssh-add -L"); outside != string(key) {
		t.Errorf("the agent has %q", outside)
	}
	if r := b.works(dir, "--ssh-agent", "ask", "ssh-add -L; "+sign+" || echo refused"); !strings.HasSuffix(r.stdout, "refused\n") {
		t.Errorf("without a terminal: %+v", r)
	}
	if r := b.works(dir, "ssh-add -L; echo $SSH_AUTH_SOCK."); strings.TrimSpace(r.stdout) != "." {
		t.Errorf("without the flag: %+v", r)
	}
}
