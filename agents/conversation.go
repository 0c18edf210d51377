package agents

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"demesne/internal/flock"
	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/runner/jobs"
	"demesne/session"
)

// Conversation is what a follow-up needs of the runs before it. Its record is in [SidecarDir] of the first run's directory, where
// no sandbox writes. Every run of a conversation has the home, the workspace and the /out of the first one.
type Conversation struct {
	Agent   string  // name of the row
	Session string  `json:",omitempty"` // of the latest run; empty: none that a follow-up could resume
	Out     string  // see [session.CreateOptions]
	Private bool    `json:",omitempty"` // it has files of the user
	Request Request // of the latest run, without its prompt
	Cost    float64 // of all runs that ended, in US dollars
	Tokens  int64   // the same
}

// SidecarDir is the directory of a run for files that only the host writes.
const SidecarDir = "sidecar-results"

// maxConversation bounds a record, in bytes.
const maxConversation = 4 << 20

func conversationFile(dir string) string { return filepath.Join(dir, SidecarDir, "conversation.json") }

// Write writes the record into the directory of the first run.
func (c *Conversation) Write(dir string) error {
	if err := fsutil.WriteRecord(conversationFile(dir), c, maxConversation); err != nil {
		return fmt.Errorf("keep conversation: %w", err)
	}
	return nil
}

// ReadConversation reads the record of the directory of a first run.
func ReadConversation(dir string) (*Conversation, error) {
	c := &Conversation{}
	err := fsutil.ReadRecord(conversationFile(dir), c, maxConversation)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("no agent ran there")
	case err != nil:
		return nil, fmt.Errorf("read conversation: %w", err)
	case c.Session == "":
		return nil, fmt.Errorf("agent %q left no session that a follow-up can resume", c.Agent)
	}
	return c, nil
}

// FollowUp returns the request that continues an earlier run with what r has: a prompt, labels, inputs and bounds. id is of a job.
// With user, it may also be the name of a run's directory.
func FollowUp(s *session.Service, id string, user bool, r Request) (Request, error) {
	store, err := s.Jobs()
	if err != nil {
		return r, err
	}
	name := id
	switch j, err := store.Get(id); {
	case err == nil && !j.Status.Over():
		return r, text.Hinted(fmt.Errorf("continue %q: it has not ended", id), "wait for it, or cancel it")
	case err == nil:
		var earlier Request
		if json.Unmarshal(j.Request, &earlier) != nil || earlier.Prompt == "" {
			return r, fmt.Errorf("continue %q: not an agent", id)
		}
		name = cmp.Or(earlier.Continues, s.DirectoryOf(j))
	case !user || !errors.Is(err, jobs.ErrUnknown):
		return r, err
	case filepath.Base(name) != name || !filepath.IsLocal(name) || name == ".":
		return r, fmt.Errorf("continue %q: %w", id, err)
	}
	root, err := s.OutputRoot()
	if err != nil {
		return r, err
	}
	c, err := ReadConversation(filepath.Join(root, name))
	if err != nil {
		return r, fmt.Errorf("continue %q: %w", id, err)
	}
	return c.next(name, r)
}

// next returns the request of a follow-up. The latest run has the bounds that r lacks.
func (c *Conversation) next(name string, r Request) (Request, error) {
	n := c.Request
	n.Traits, n.Prompt, n.Continues = r.Traits, r.Prompt, name
	n.Inputs = slices.DeleteFunc(slices.Clone(n.Inputs), func(old runner.Input) bool {
		return slices.ContainsFunc(r.Inputs, func(in runner.Input) bool { return in.Name == old.Name })
	})
	n.Inputs = append(n.Inputs, r.Inputs...)
	n.MaxCost, n.MaxTokens = cmp.Or(r.MaxCost, n.MaxCost), cmp.Or(r.MaxTokens, n.MaxTokens)
	n.MaxTurns, n.Timeout = cmp.Or(r.MaxTurns, n.MaxTurns), cmp.Or(r.Timeout, n.Timeout)
	r.Traits, r.Prompt, r.Inputs, r.MaxCost, r.MaxTokens, r.MaxTurns, r.Timeout = jobs.Traits{}, "", nil, 0, 0, 0, 0
	switch {
	case !reflect.DeepEqual(r, Request{}):
		return n, errors.New("a follow-up takes a prompt, inputs and bounds: its conversation has the rest")
	case n.Research && len(n.Inputs) > 0:
		return n, errors.New("an agent with the whole network gets no inputs")
	}
	_, err := c.Left(n) // once more when it starts
	return n, err
}

// Left returns r with what the runs before it left of its bounds of cost and tokens, which hold for the conversation.
func (c *Conversation) Left(r Request) (Request, error) {
	if r.MaxCost > 0 && c.Cost >= r.MaxCost {
		return r, fmt.Errorf("budget: cost: the conversation has used $%.4f of $%.4f", c.Cost, r.MaxCost)
	}
	if r.MaxTokens > 0 && c.Tokens >= r.MaxTokens {
		return r, fmt.Errorf("budget: tokens: the conversation has used %d of %d", c.Tokens, r.MaxTokens)
	}
	r.MaxCost, r.MaxTokens = max(0, r.MaxCost-c.Cost), max(0, r.MaxTokens-c.Tokens)
	return r, nil
}

// talks reports whether the program can resume a session with a prompt of the user.
func (p *Provider) talks() bool {
	has := func(what string) bool {
		return slices.ContainsFunc(p.Resume, func(arg string) bool { return strings.Contains(arg, what) })
	}
	return has("{session}") && has("{prompt}")
}

// Keeps returns the id of the session in e if a follow-up can resume it, or "".
func (p *Provider) Keeps(e Event) string {
	if e.Kind == eventSession && p.talks() {
		return e.Session
	}
	return ""
}

// FollowUp returns the argv that resumes a session with the prompt of a task. Everything else is as Headless plans it.
func (a *Agent) FollowUp(t Task, session string) ([]string, error) {
	if !a.Provider.talks() {
		return nil, fmt.Errorf("resume session: agent %q cannot resume with a prompt", a.Provider.Name)
	}
	argv, err := a.resume(t, session, a.prompt(t))
	return append(argv, t.images(a.Provider.Image.Argument)...), err
}

// Images returns the inputs of a request that are images by their names, without those that the conversation had before. Names
// with spaces are left out: a prompt cannot mention them.
func (c *Conversation) Images(r Request) (names []string) {
	for _, in := range r.Inputs {
		switch strings.ToLower(filepath.Ext(in.Name)) {
		case ".png", ".jpg", ".jpeg", ".gif", ".webp":
			if !slices.Contains(c.Request.Inputs, in) && strings.IndexFunc(in.Name, unicode.IsSpace) < 0 {
				names = append(names, in.Name)
			}
		}
	}
	return names
}

// LockHome takes the home of a conversation for one run, until release. The directory of the first run, which has the home, is in
// use until then, and was last used then: see [session.Service.PruneOutputs].
func LockHome(home string) (release func(), err error) {
	first := filepath.Dir(home)
	used, err := flock.TryOpen(first, unix.O_DIRECTORY, flock.Shared)
	if err != nil {
		return nil, fmt.Errorf("lock directory: %w", err)
	}
	f, err := flock.TryOpen(home, unix.O_DIRECTORY, flock.Exclusive)
	if err != nil {
		used.Close()
	}
	if errors.Is(err, flock.ErrLocked) {
		return nil, errors.New("another run of it has not ended")
	}
	if err != nil {
		return nil, fmt.Errorf("lock home: %w", err)
	}
	return func() {
		os.Chtimes(first, time.Time{}, time.Now()) // its inode changes
		f.Close()
		used.Close()
	}, nil
}
