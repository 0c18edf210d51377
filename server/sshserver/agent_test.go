package sshserver

import (
	"crypto/ed25519"
	"net"
	"slices"
	"testing"

	"demesne/internal/sshagent"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// askingAgent returns a client of an agent that has one key and asks allow.
func askingAgent(t testing.TB, allow func(sshagent.Signature) bool) (agent.ExtendedAgent, net.Conn) {
	ring := agent.NewKeyring()
	_, key, err := ed25519.GenerateKey(nil)
	if err == nil {
		err = ring.Add(agent.AddedKey{PrivateKey: key, Comment: "mine"})
	}
	if err != nil {
		t.Fatal(err)
	}
	inside, outside := net.Pipe()
	t.Cleanup(func() { inside.Close() })
	go func() {
		defer outside.Close()
		sshagent.Serve(outside, allow, func(request []byte) ([]byte, error) {
			a, b := net.Pipe()
			defer a.Close()
			go agent.ServeAgent(ring, b)
			if _, err := a.Write(request); err != nil {
				return nil, err
			}
			return sshagent.Read(a)
		})
	}()
	return agent.NewClient(inside), inside
}

// TestAskingAgent checks that a client lists keys, gets only the signatures that the user allows, and can do nothing else.
func TestAskingAgent(t *testing.T) {
	var asked []string
	answer := true
	c, _ := askingAgent(t, func(s sshagent.Signature) bool {
		asked = append(asked, s.Key+" "+s.What)
		return answer
	})
	keys, err := c.List()
	if err != nil || len(keys) != 1 || keys[0].Comment != "mine" {
		t.Fatalf("%v, %v", keys, err)
	}
	login := slices.Concat([]byte("\x00\x00\x00\x03abc\x32"), []byte("\x00\x00\x00\x03git"), []byte("rest"))
	sig, err := c.Sign(keys[0], login)
	if err != nil || keys[0].Verify(login, sig) != nil {
		t.Errorf("sign: %v", err)
	}
	if _, err := c.Sign(keys[0], []byte("SSHSIG\x00\x00\x00\x03git")); err != nil {
		t.Errorf("sign: %v", err)
	}
	answer = false
	if _, err := c.Sign(keys[0], []byte("\x00\x00\x00\xffx")); err == nil {
		t.Error("a refused signature was made")
	}
	print := ssh.FingerprintSHA256(keys[0])
	if want := []string{print + ` a login by ssh as "git"`, print + ` a file or commit, for "git"`, print + " data of an unknown kind"}; !slices.Equal(asked, want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
	_, other, _ := ed25519.GenerateKey(nil)
	_, ext := c.Extension("session-bind@openssh.com", nil)
	for name, err := range map[string]error{"add": c.Add(agent.AddedKey{PrivateKey: other}), "remove": c.Remove(keys[0]), "remove all": c.RemoveAll(),
		"lock": c.Lock([]byte("x")), "unlock": c.Unlock([]byte("x")), "extension": ext} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if keys, err := c.List(); err != nil || len(keys) != 1 {
		t.Errorf("afterwards: %v, %v", keys, err)
	}
}

// TestAskingAgentTooLong checks that a message beyond the bound ends the connection.
func TestAskingAgentTooLong(t *testing.T) {
	_, conn := askingAgent(t, func(sshagent.Signature) bool { return true })
	conn.Write([]byte{0, 4, 0, 1})
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}
