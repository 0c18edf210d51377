// Package approve is demesne approve and demesne deny: decisions about requests for the host, for all programs that have such requests.
package approve

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/text"
	"demesne/server/hostcmd"
	"demesne/server/hostcmd/hostaccess"
	"demesne/server/servecmd"
)

// Approve lists requests for this machine, or approves one.
func Approve(o *servecmd.ApproveOptions, args []string, out io.Writer) error {
	store, err := open()
	if err != nil {
		return err
	}
	list := len(args) == 0 || args[0] == "list"
	switch {
	case list && len(args) > 1:
		return fmt.Errorf("unexpected argument %q", args[1])
	case list && o.For != 0 || !list && (o.All || o.JSON):
		return errors.New("--all and --json are for the list, and --for is for an approval")
	case list:
		return store.list(o, out)
	case len(args) > 1:
		return text.Hinted(errors.New("one request at a time"), "demesne approve list")
	case os.Getenv(hostcmd.RequestVariable) != "":
		return errHost
	}
	return store.approve(o, args[0], out)
}

var errHost = errors.New("a command of the host cannot decide about requests")

// Deny refuses requests.
func Deny(ids []string) error {
	store, err := open()
	switch {
	case err != nil:
		return err
	case len(ids) == 0:
		return text.Hinted(errors.New("needs a request"), "demesne approve list")
	case os.Getenv(hostcmd.RequestVariable) != "":
		return errHost
	}
	for _, id := range ids {
		r, err := store.find(id)
		if err != nil {
			return err
		}
		if _, err := store.Decide(hostcmd.Decision{ID: r.Request.ID, By: decider()}); err != nil {
			return err
		}
	}
	return nil
}

// requests are the requests of all programs of this user.
type requests struct{ *hostcmd.Store }

func open() (requests, error) {
	dir, err := hostaccess.State()
	if err != nil {
		return requests{}, err
	}
	store, err := hostcmd.OpenStore(dir)
	return requests{store}, err
}

// decider names the person for the records: the user of this process.
func decider() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return fmt.Sprintf("user %d", os.Getuid())
}

func (s requests) list(o *servecmd.ApproveOptions, out io.Writer) error {
	all, err := s.List()
	if err != nil {
		return err
	}
	shown := []*hostcmd.Record{}
	for _, r := range all {
		if o.All || r.State == hostcmd.Pending || r.State == hostcmd.Granted {
			shown = append(shown, r)
		}
	}
	if o.JSON {
		b, err := json.MarshalIndent(shown, "", "  ")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(out, text.SafeJSON(string(b)))
		return err
	}
	now := time.Now()
	for i, r := range shown {
		if i > 0 {
			fmt.Fprintln(out)
		}
		io.WriteString(out, r.Request.Describe(now)+fate(r, now))
	}
	if len(shown) == 0 {
		fmt.Fprintln(out, "nothing waits for a decision")
	}
	return nil
}

// fate says what has become of a request, in one line.
func fate(r *hostcmd.Record, now time.Time) string {
	state := string(r.State)
	switch r.State {
	case hostcmd.Pending:
		state += ", for " + r.Request.Expires.Sub(now).Round(time.Second).String()
	case hostcmd.Granted:
		state += ", for " + r.Until.Sub(now).Round(time.Second).String()
	}
	if r.By != "" {
		state += ", by " + r.By
	}
	if r.Exit != nil {
		state += fmt.Sprintf(", exit code %d", *r.Exit)
	}
	if r.Why != "" {
		state += ": " + r.Why
	}
	return fmt.Sprintf("%-10s %s\n", "is", text.SafeLine(state))
}

// find returns the request whose id begins with s.
func (s requests) find(id string) (found *hostcmd.Record, err error) {
	all, err := s.List()
	if err != nil {
		return nil, err
	}
	for _, r := range all {
		if id != "" && strings.HasPrefix(r.Request.ID, id) {
			if found != nil {
				return nil, fmt.Errorf("request %q: several begin like this", id)
			}
			found = r
		}
	}
	if found == nil {
		return nil, text.Hinted(fmt.Errorf("request %q: %w", id, hostcmd.ErrNone), "demesne approve list")
	}
	return found, nil
}

// approve asks on the controlling terminal, which no command of a caller has. Stdin does not count: a program can write it.
func (s requests) approve(o *servecmd.ApproveOptions, id string, out io.Writer) error {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return text.Hinted(errors.New("there is no terminal to ask on"), "type it on a terminal, or decide on the page of demesne serve")
	}
	defer tty.Close()
	r, err := s.find(id)
	if err != nil {
		return err
	}
	digest := r.Request.Digest()                                // of what is shown
	unix.IoctlSetInt(int(tty.Fd()), unix.TCFLSH, unix.TCIFLUSH) // what was typed before the question does not answer it
	fmt.Fprintf(tty, "%s\nlet it happen? [y/N] ", r.Request.Describe(time.Now()))
	line, err := bufio.NewReader(tty).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(line)); err != nil || answer != "y" && answer != "yes" {
		return errors.New("not approved: the request still waits; demesne deny refuses it")
	}
	if _, err := s.Decide(hostcmd.Decision{ID: r.Request.ID, Digest: digest, Approve: true, For: o.For, By: decider()}); err != nil {
		return err
	}
	for end := time.Now().Add(beginTime); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if r, err = s.Get(r.Request.ID); err != nil {
			return err
		}
		if r.State != hostcmd.Approved && r.State != hostcmd.Running {
			break
		}
	}
	_, err = io.WriteString(out, fate(r, time.Now()))
	return err
}

// beginTime is how long approve waits to say what has become of a request.
const beginTime = 3 * time.Second
