package app

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"demesne/internal/cmdline"
	"demesne/internal/fsutil"
	"demesne/internal/sshagent"
	"demesne/internal/text"
	"demesne/runner"
)

// SSHAgent is the user's ssh agent for the commands of one sandbox. The zero value has none.
type SSHAgent struct{ word string }

// sshAgentSocket is where the sandbox sees the agent.
const sshAgentSocket = "/run/ssh-agent.sock"

// The bounds of an agent's clients: connections at once, how long a question and an answer of the user's agent wait.
const (
	maxSSHClients  = 16
	sshAskTime     = time.Minute
	sshAnswerLimit = 2 * time.Minute // a key in hardware waits for a touch
)

// Flag is a flag of agent.
func (s *SSHAgent) Flag() cmdline.Flag {
	words := []string{"ask"}
	return cmdline.Flag{Group: GroupSandbox, Long: "ssh-agent", Arg: "WORD", Words: words, Set: cmdline.Word(&s.word, words),
		Help: "let ssh in the sandbox sign with the keys of your ssh agent, and ask you on the terminal about each signature; the network rules decide which servers it reaches"}
}

// Given reports whether the flag was given.
func (s *SSHAgent) Given() bool { return s.word != "" }

// Serve makes a socket in dir, and adds it to the sandbox of spec. stop ends its connections.
func (s *SSHAgent) Serve(a *App, dir string, spec *runner.Spec) (stop func(), err error) {
	if s.word == "" {
		return func() {}, nil
	}
	to := a.Getenv("SSH_AUTH_SOCK")
	if to == "" {
		return nil, text.Hinted(errors.New("--ssh-agent: there is no ssh agent: SSH_AUTH_SOCK is not set"), "eval $(ssh-agent) && ssh-add starts one")
	}
	at, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("make socket for ssh agent: %w", fsutil.Reason(err))
	}
	defer at.Close()
	l, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/ssh-agent", at.Fd())) // a short name for any directory
	if err != nil {
		return nil, fmt.Errorf("make socket for ssh agent: %w", err)
	}
	a.OpenQuestions()
	spec.Mounts = append(spec.Mounts, runner.Mount{Source: filepath.Join(dir, "ssh-agent"), Target: sshAgentSocket, ReadOnly: true, Socket: true})
	spec.Defaults.Env = append(spec.Defaults.Env, "SSH_AUTH_SOCK="+sshAgentSocket)
	var one sync.Mutex // one question at a time
	allow := func(s sshagent.Signature) bool {
		one.Lock()
		defer one.Unlock()
		yes, _ := a.Question(fmt.Sprintf("%s: sign %s with key %s?", a.Verb, s.What, s.Key), sshAskTime)
		return yes
	}
	go acceptSSH(l, allow, to)
	return func() { l.Close() }, nil
}

// acceptSSH serves connections until l is closed.
func acceptSSH(l net.Listener, allow func(sshagent.Signature) bool, to string) {
	slots := make(chan struct{}, maxSSHClients)
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			defer c.Close()
			sshagent.Serve(c, allow, func(request []byte) ([]byte, error) { return askSSH(to, request) })
		}()
	}
}

// askSSH sends one request to the user's agent, by a connection of its own.
func askSSH(to string, request []byte) ([]byte, error) {
	c, err := net.Dial("unix", to)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(sshAnswerLimit))
	if _, err := c.Write(request); err != nil {
		return nil, err
	}
	return sshagent.Read(c)
}
