// Package app has what all verbs of demesne share: the caller's console, errors with their exit codes and hints, tables, and
// the frame of a verb.
//
// A [Verb] is a command line of package cmdline with a constructor of its options. The constructor gets the [App] of one
// command line. The options declare the flags that set them, and execute the line:
//
//	type stopOptions struct {
//		*app.App
//		grace time.Duration
//	}
//
//	func (o *stopOptions) Flags() cmdline.Flags { … cmdline.Duration(&o.grace) … }
//
//	func (o *stopOptions) Run(ids []string) (int, error) { … }
//
//	app.Verb{Command: cmdline.Command{Name: "stop", …}, New: func(a *app.App) app.Options {
//		return &stopOptions{App: a, grace: defaultGrace}
//	}}
//
// An App has its dependencies as functions: Connect finds the runner, Images opens the image store. Tests give it others.
//
// Answers go to stdout, and messages to stderr: see [Console]. An error becomes a line, a hint and an exit code in one place,
// [Console.Report]; libraries give errors without hints.
package app

import (
	"context"
	"fmt"
	"os"

	"demesne/cli/stream"
	"demesne/images"
	"demesne/internal/fsutil"
	"demesne/internal/procself"
	"demesne/internal/text"
	"demesne/runner/client"
	"demesne/session"
)

// App is the program's environment. Tests construct their own.
type App struct {
	Console
	Connect func(context.Context, client.Options) (session.Engine, error) // nil: client.Connect
	Images  func() (*images.Client, error)
	Quit    *procself.SIGQUITAction // SIGQUIT's disposition at the start
	Verb    string
	Args    []string // all arguments after the verb
	Floor   stream.Floor
	Answers *stream.Answers // nil without --ask
}

// OwnState chooses a directory for demesne's files, and says so when it makes one.
func (a *App) OwnState() {
	dir, err := procself.OwnState(fsutil.StateVariable)
	if err == nil && dir != "" {
		why := "cannot be used"
		if procself.Checkout(os.Getenv("HOME")) {
			why = "is a checkout"
		}
		a.Say(fmt.Sprintf("the home directory %q %s: state and outputs are in %s", os.Getenv("HOME"), why, text.SafeLine(dir)))
	} // on an error, the command that needs a directory reports it
}

// Session returns a session of this program's environment, with secrets and routes of o.
func (a *App) Session(o session.Options) *session.Service {
	o.Getenv, o.Connect, o.Images = a.Getenv, a.Connect, a.Images
	return session.New(o)
}

// WithSession calls f with a session.
func (a *App) WithSession(f func(context.Context, *session.Service) (int, error)) (int, error) {
	s := a.Session(session.Options{})
	defer s.Close()
	return f(context.Background(), s)
}

// WithEngine calls f with a session's engine.
func (a *App) WithEngine(f func(context.Context, session.Engine) (int, error)) (int, error) {
	return a.WithSession(func(ctx context.Context, s *session.Service) (code int, err error) {
		err = s.With(ctx, func(eng session.Engine) error { code, err = f(ctx, eng); return err })
		return code, err
	})
}

// WithImages calls f with the image client and a context that ends on INT, TERM, HUP or QUIT.
func (a *App) WithImages(f func(context.Context, *images.Client) (int, error)) (int, error) {
	c, err := a.Images()
	if err != nil {
		return 0, err
	}
	sig := stream.SignalsWatched(a.Quit)
	code, err := f(sig.Ctx, c)
	if gave := sig.GaveUp(); gave != 0 && (err != nil || code != 0) {
		return gave, nil
	}
	return code, err
}
