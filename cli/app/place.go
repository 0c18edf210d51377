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

// Exported returns the variables that a job on another machine gets: see [places.Exported].
func (a *App) Exported(names ...string) []string { return places.Exported(a.Getenv, names...) }

// SettleIn prepares the process of a job on a cluster's machine: see [places.SettleIn].
func (a *App) SettleIn() (allocation runner.Limits, leave func(), err error) {
	return places.SettleIn(a.Getenv)
}
