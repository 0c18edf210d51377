package app

import (
	"demesne/runner"
	"demesne/runner/jobs"
	"demesne/session"
	"demesne/session/places"
)

// PlaceLocal is the place of jobs on this machine.
const PlaceLocal = places.Local

// Jobs opens the user's background jobs, on this machine and on clusters.
func (a *App) Jobs() (*jobs.Store, error) {
	store, err := a.Session(session.Options{}).Jobs()
	if err == nil {
		store.Place = places.Of
	}
	return store, err
}

// ParsePlace checks where a job shall run: see [places.Parse].
func ParsePlace(on string) (string, error) { return places.Parse(on) }

// Remote reports whether a place does not see this machine's files: see [places.Remote].
func Remote(on string) bool { return places.Remote(on) }

// Shared returns the variables that a job on another machine gets: see [places.Shared].
func (a *App) Shared() []string { return places.Shared(a.Getenv) }

// Set returns the names of variables that this environment has.
func (a *App) Set(names []string) []string { return places.Set(a.Getenv, names) }

// SettleIn prepares the process of a job on a cluster's machine: see [places.SettleIn].
func (a *App) SettleIn() (allocation runner.Limits, leave func(), err error) {
	return places.SettleIn(a.Getenv)
}
