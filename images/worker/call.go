package worker

import (
	"context"
	"fmt"

	"demesne/images"
	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/images/pull"
)

// call is one invocation of a command.
type call struct {
	ctx     context.Context
	args    []string
	options map[string]string
	dir     string // the store's directory
	out     *reporter
}

// option returns a setter.
func (c *call) option(name string) func(string) error {
	return func(s string) error {
		if c.options == nil {
			c.options = map[string]string{}
		}
		c.options[name] = s
		return nil
	}
}

// store opens the image store.
func (c *call) store() (*images.Store, error) {
	if c.dir == "" {
		dir, err := images.DefaultDir()
		if err != nil {
			return nil, err
		}
		c.dir = dir
	}
	store, err := images.Open(c.dir)
	if err == nil {
		c.dir = store.Dir()
	}
	return store, err
}

// usage returns an error for a wrong invocation.
func usage(format string, args ...any) error {
	return &events.Failure{Code: events.CodeInvalid, Text: fmt.Sprintf(format, args...)}
}

// fetch downloads the blobs of an image that were dropped, and keeps all of its blobs while the store is open.
func (c *call) fetch(store *images.Store, img *images.Image) error {
	return pull.Fetch(c.ctx, img, pull.Options{Store: store, Transfer: pull.Transfer{Report: c.out.send}})
}

// result opens the store, calls do with the reference of a name, and sends the digest of the image that do returns.
func (c *call) result(name string, do func(*images.Store, imageref.Ref) (oci.Digest, error)) error {
	store, err := c.store()
	if err != nil {
		return err
	}
	defer store.Close()
	ref, err := imageref.Parse(name)
	if err != nil {
		return usage("%v", err)
	}
	digest, err := do(store, ref)
	if err == nil {
		c.out.send(events.Event{Event: events.Result, Digest: digest})
	}
	return err
}
