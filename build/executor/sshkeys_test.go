package executor

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"demesne/internal/text"
)

// keyFile writes a private key.
func keyFile(t *testing.T, name string, key any, passphrase string) string {
	t.Helper()
	block, err := ssh.MarshalPrivateKey(key, name)
	if passphrase != "" {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(key, name, []byte(passphrase))
	}
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestKeyAgent checks that the agent of key files signs with each key, also by SHA-2 with RSA, and that no command changes it.
func TestKeyAgent(t *testing.T) {
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	all, err := ParseAgents([]string{"k=" + keyFile(t, "ed", ed, "") + "," + keyFile(t, "rsa", other, "")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "s")
	stop, err := serveSocket(socket, all["k"].serve)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	client := agent.NewClient(c)
	for range 2 {
		keys, err := client.List()
		if err != nil || len(keys) != 2 || keys[0].Comment != "ed" || keys[1].Comment != "rsa" {
			t.Fatalf("keys: %v, %v", keys, err)
		}
		sig, err := client.Sign(keys[0], []byte("text"))
		if err != nil || keys[0].Verify([]byte("text"), sig) != nil {
			t.Errorf("sign: %v", err)
		}
		sig, err = client.SignWithFlags(keys[1], []byte("text"), agent.SignatureFlagRsaSha512)
		if err != nil || sig.Format != ssh.KeyAlgoRSASHA512 || keys[1].Verify([]byte("text"), sig) != nil {
			t.Errorf("sign by SHA-512: %v", err)
		}
		for what, err := range map[string]error{
			"add": client.Add(agent.AddedKey{PrivateKey: ed}), "remove": client.Remove(keys[0]), "remove all": client.RemoveAll(),
			"lock": client.Lock([]byte("x")), "unlock": client.Unlock([]byte("x")),
		} {
			if err == nil {
				t.Errorf("%s: allowed", what)
			}
		}
	}
}

// TestKeyAgentHostile checks that requests of a wrong length end the connection, and no other.
func TestKeyAgentHostile(t *testing.T) {
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	all, err := ParseAgents([]string{"k=" + keyFile(t, "ed", ed, "")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"\xff\xff\xff\xff", "\x00\x04\x00\x01", "\x00\x00\x00\x00", "\x00\x00\x00\x05\x0d\xff\xff\xff\xff", "\x00\x00\x00\x01\xfe", strings.Repeat("\x00\x00\x00\x01\x0b", 1000)} {
		ours, theirs := net.Pipe()
		ended := make(chan bool)
		go func() { all["k"].serve(theirs); close(ended) }()
		go io.Copy(io.Discard, ours)
		io.WriteString(ours, text)
		ours.Close()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Errorf("%.20q: still served", text)
		}
	}
}

// TestAgentsOf checks what --ssh refuses.
func TestAgentsOf(t *testing.T) {
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	path := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(path, []byte("top secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"SSH_AUTH_SOCK": socket}
	for word, want := range map[string]string{
		"default": "", "x=" + socket: "", "x=" + keyFile(t, "good", ed, ""): "",
		"x=":                                    "no socket",
		"x=/nosuch":                             `open "/nosuch": no such file`,
		"x=" + path:                             `text": no private key`,
		"x=" + path + "," + socket:              "give this one another id",
		"x=" + filepath.Dir(path):               "neither a socket nor a file",
		"x=" + keyFile(t, "locked", ed, "pass"): "the key has a passphrase",
	} {
		_, err := ParseAgents([]string{word}, func(name string) string { return env[name] })
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) || err != nil && strings.Contains(err.Error(), "top secret") {
			t.Errorf("%s: %v, want %q", word, err, want)
		}
		if want == "the key has a passphrase" && !strings.Contains(text.HintOf(err), "ssh-add") {
			t.Errorf("hint: %q", text.HintOf(err))
		}
	}
}
