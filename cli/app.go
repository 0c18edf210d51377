package cli

import (
	"context"
	"fmt"
	"os"

	"demesne/cli/stream"
	"demesne/images"
	"demesne/internal/fsutil"
	"demesne/internal/procself"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/runner/client"
	"demesne/session"
)

// app is the program's environment. Tests construct their own.
type app struct {
	console
	connect func(context.Context, client.Options) (session.Engine, error) // nil: client.Connect
	images  func() (*images.Client, error)
	quit    *procself.SIGQUITAction // SIGQUIT's disposition at the start
	verb    string
	args    []string // all arguments after the verb
	floor   stream.Floor
	answers *stream.Answers // nil without --ask
}

// ownState chooses a directory for demesne's files, and says so when it makes one.
func (a *app) ownState() {
	dir, err := procself.OwnState(fsutil.StateVariable)
	if err == nil && dir != "" {
		why := "cannot be used"
		if procself.Checkout(os.Getenv("HOME")) {
			why = "is a checkout"
		}
		a.say(fmt.Sprintf("the home directory %q %s: state and outputs are in %s", os.Getenv("HOME"), why, text.SafeLine(dir)))
	} // on an error, the command that needs a directory reports it
}

// session returns a session of this program's environment. secrets and routes may be nil: see [session.Options].
func (a *app) session(secrets func() ([]runner.Secret, error), routes func(runner.Spec) []runner.Route) *session.Service {
	return session.New(session.Options{Getenv: a.getenv, Connect: a.connect, Images: a.images, Secrets: secrets, Routes: routes})
}

// withSession calls f with a session.
func (a *app) withSession(f func(context.Context, *session.Service) (int, error)) (int, error) {
	s := a.session(nil, nil)
	defer s.Close()
	return f(context.Background(), s)
}

// with calls f with a session's engine.
func (a *app) with(f func(context.Context, session.Engine) (int, error)) (int, error) {
	return a.withSession(func(ctx context.Context, s *session.Service) (code int, err error) {
		err = s.With(ctx, func(eng session.Engine) error { code, err = f(ctx, eng); return err })
		return code, err
	})
}

// withImages calls f with the image client and a context that ends on INT, TERM, HUP or QUIT.
func (a *app) withImages(f func(context.Context, *images.Client) (int, error)) (int, error) {
	c, err := a.images()
	if err != nil {
		return 0, err
	}
	sig := stream.SignalsWatched(a.quit)
	code, err := f(sig.Ctx, c)
	if gave := sig.GaveUp(); gave != 0 && (err != nil || code != 0) {
		return gave, nil
	}
	return code, err
}
