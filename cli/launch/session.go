package launch

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"demesne/cli/app"
	"demesne/cli/progress"
	"demesne/cli/stream"
	"demesne/images/oci"
	"demesne/runner"
	"demesne/session"
)

// Session returns a session with the secrets of the flags. routes may be nil: see [session.Options].
func (o *Options) Session(routes func(runner.Spec) []runner.Route) *session.Service {
	so := session.Options{Routes: routes}
	if o.Network.order != nil {
		so.Secrets = func() ([]runner.Secret, error) {
			err := o.Network.FindSecrets(&o.Console)
			return o.Network.found, err
		}
	}
	return o.App.Session(so)
}

// CreateOptions returns the sandbox that the command line asks for.
func (r *Root) CreateOptions(spec runner.Spec) session.CreateOptions {
	o := r.o
	c := session.CreateOptions{Spec: spec, Image: r.Ref, Pull: o.Pull, Platform: o.platform, User: o.UserName, Out: o.out, Egress: o.Network.egress()}
	if o.Image.Kind == "" {
		c.Unasked = append(c.Unasked, "image")
	}
	if o.dev != nil {
		c.Configured = func(c *session.CreateOptions, image oci.Config) error {
			return o.dev.Configured(c, image, o.User != nil || o.UserName != "")
		}
	}
	if o.Network.Mode == "" {
		c.Unasked = append(c.Unasked, "egress")
	}
	return c
}

// Callbacks returns the functions that report on a sandbox and its command, and that ask about names.
func (o *Options) Callbacks(sig *stream.Signals, st *Stages, p *progress.Progress) session.Callbacks {
	return session.Callbacks{
		Image: p.Take,
		Note:  func(line string) { o.Say(o.Verb + ": " + line) },
		Stage: st.add,
		Ready: func() { <-sig.Watched },
		Made: func(b *session.Sandbox) {
			p.Done()
			st.add(b.Trace...)
			o.tellMade(b)
		},
		Ask: asker(o.App, o.Verb, &o.Network),
	}
}

// tellMade prints what the caller should know of a sandbox that was made or opened.
func (o *Options) tellMade(b *session.Sandbox) {
	if o.Verb == "run" || o.Verb == "create" {
		if b.Replaced {
			o.Say(fmt.Sprintf("%s: removed the sandbox with the key %q and its files; %s replaces it", o.Verb, o.Key, b.ID))
		}
		warnMinimal(&o.Console, o.Verb, b.Level)
		warnUser(&o.Console, o.Verb, b.Unmapped)
	}
	if o.Verb == "create" && o.JSON {
		return
	}
	if b.Restarted {
		o.Say(fmt.Sprintf("%s: sandbox %s was stopped; it was started again with its files, without its earlier processes", o.Verb, b.ID))
	}
	if b.Unserved {
		o.Say(fmt.Sprintf("%s: the Docker socket of sandbox %s is dead: its server was killed, and its containers ended", o.Verb, b.ID))
		fmt.Fprintf(o.Stderr, "hint: after demesne stop %s the next command starts the sandbox with a new one\n", b.ID)
	}
	if len(b.MissingSecrets) > 0 {
		o.Say(fmt.Sprintf("%s: sandbox %s was started without its secrets: %s", o.Verb, b.ID, strings.Join(b.MissingSecrets, ", ")))
		fmt.Fprintf(o.Stderr, "hint: demesne stop %s, then exec with --secret and --secret-for, passes them\n", b.ID)
	}
}

// warnUser warns that commands do not run as the user that the image names.
func warnUser(c *app.Console, verb string, u *runner.User) {
	if u == nil {
		return
	}
	c.Say(fmt.Sprintf("%s: the image's user %d:%d is not mapped here; commands run as 0:0", verb, u.UID, u.GID))
	fmt.Fprintln(c.Stderr, "hint: demesne check shows how to get more ids; --user 0 says that 0:0 is right")
}

// minimalText says what the level minimal is, with the kernel's version of Landlock.
func minimalText(abi int) string {
	const text = "isolation is minimal: no namespaces here, only Landlock and seccomp"
	if abi < 6 {
		return text + "; before Linux 6.12 a command can signal every process of this user"
	}
	return text
}

// warnMinimal warns about the minimal isolation level. The receipt reports all other fallbacks.
func warnMinimal(c *app.Console, verb string, level runner.Level) {
	if level != runner.LevelMinimal {
		return
	}
	c.Say(verb + ": " + minimalText(session.LandlockABI()))
	fmt.Fprintln(c.Stderr, "hint: demesne check shows what is missing; with --require degraded such a run fails")
}

// Stages collects durations: the runner's own stages, and those that only the client sees. It is safe for
// concurrent use.
type Stages struct {
	mu    sync.Mutex
	list  []runner.Stage
	exec  time.Time // when the command started
	first time.Time // when its first output was copied
	end   time.Time // when its result arrived
}

func (s *Stages) add(st ...runner.Stage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, st...)
}

func (s *Stages) executed() { s.mark(&s.exec) }

func (s *Stages) firstByte() { s.mark(&s.first) }

func (s *Stages) ended() { s.mark(&s.end) }

// mark sets t to the current time, once.
func (s *Stages) mark(t *time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.IsZero() {
		*t = time.Now()
	}
}

// All returns the stages in order; the last one is the total time since began.
func (s *Stages) All(began time.Time) []runner.Stage {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := append([]runner.Stage(nil), s.list...)
	for _, mark := range []struct {
		name string
		at   time.Time
	}{{"first byte", s.first}, {"result", s.end}} {
		if !s.exec.IsZero() && !mark.at.IsZero() {
			all = append(all, runner.Stage{Name: mark.name, MS: milliseconds(mark.at.Sub(s.exec))})
		}
	}
	return append(all, runner.Stage{Name: "total", MS: milliseconds(time.Since(began))})
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// PrintTrace writes the stages as a table. "first byte" and "result" count from the command's start.
func PrintTrace(w io.Writer, trace []runner.Stage) {
	for _, st := range trace {
		fmt.Fprintf(w, "%-16s %9.3f ms\n", st.Name, st.MS)
	}
}
