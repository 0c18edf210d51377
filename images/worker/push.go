package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"demesne/images"
	"demesne/images/compression"
	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/images/pull"
	"demesne/images/push"
	"demesne/internal/flock"
)

// secretFD is where the caller passes a password or a passphrase.
const (
	secretFD  = 3
	maxSecret = 64 << 10
)

// pushImage copies an image of the store to a registry.
func (c *call) pushImage() error {
	store, err := c.store()
	if err != nil {
		return err
	}
	defer store.Close()
	from, err := imageref.Parse(c.args[0])
	if err != nil {
		return usage("%v", err)
	}
	to, err := imageref.Parse(c.args[1])
	if err != nil || to.Kind != imageref.Registry {
		return usage("destination %q: not a name in a registry", c.args[1])
	}
	level, err := strconv.Atoi(cmp.Or(c.options["compression-level"], "0"))
	if err != nil {
		return usage("compression level %q: not a number", c.options["compression-level"])
	}
	o := push.Options{Store: store, Format: push.Format(c.options["compression"]), Level: level, Transfer: pull.Transfer{Report: c.out.send}, System: push.SystemContext(c.options["tls-verify"], c.options["authfile"])}
	if file := c.options["sign-by"]; file != "" {
		passphrase, err := readSecret()
		if err != nil {
			return err
		}
		if o.Signer, err = push.NewSigner(file, passphrase); err != nil {
			return err
		}
	}
	img, held, err := c.whole(store, from)
	if err != nil {
		return err
	}
	defer held.Close()
	c.out.plainHTTP = tryFlag
	digest, err := push.Image(c.ctx, img, to, o)
	if err != nil {
		return err
	}
	c.out.send(events.Event{Event: events.Result, Digest: digest})
	return nil
}

// compressTime bounds the background work. A push compresses what is left.
const compressTime = 10 * time.Minute

// compressLayers compresses the layers of images that were built, so that their first push does not have to.
func (c *call) compressLayers() error {
	store, err := c.store()
	if err != nil {
		return err
	}
	defer store.Close()
	ctx, cancel := context.WithTimeout(c.ctx, compressTime)
	defer cancel()
	return compression.Work(ctx, store.Dir(), func(ctx context.Context, d oci.Digest) error {
		img, err := store.Lookup(imageref.Ref{Kind: imageref.Pinned, Given: string(d), Full: string(d)})
		if errors.Is(err, images.ErrNotFound) {
			return nil
		}
		if err == nil {
			err = push.Compress(ctx, store, img)
		}
		return err
	})
}

const tryFlag = "the registry does not use TLS; if you trust the network to it, add --tls-verify=false"

// allLogins, in place of a registry, stands for all stored credentials.
const allLogins = "all"

// login checks and stores a password.
func (c *call) login() error {
	password, err := readSecret()
	if err != nil {
		return err
	}
	lock, err := c.lockLogins()
	if err != nil {
		return err
	}
	defer lock.Close()
	c.out.plainHTTP = tryFlag
	where, err := push.Login(c.ctx, push.SystemContext(c.options["tls-verify"], c.options["authfile"]), c.args[0], c.options["username"], string(password), c.out.send)
	if err != nil {
		return err
	}
	c.out.send(events.Event{Event: events.Result, Why: where})
	return nil
}

// logout removes a stored password, or all of them.
func (c *call) logout() error {
	lock, err := c.lockLogins()
	if err != nil {
		return err
	}
	defer lock.Close()
	name := c.args[0]
	if name == allLogins {
		name = ""
	}
	if err := push.Logout(push.SystemContext("", c.options["authfile"]), name); err != nil {
		return err
	}
	c.out.send(events.Event{Event: events.Result})
	return nil
}

// lockLogins keeps two logins from writing the file at once: the library reads, changes and replaces it.
func (c *call) lockLogins() (*os.File, error) {
	store, err := c.store()
	if err != nil {
		return nil, err
	}
	lock, err := flock.Open(c.ctx, store.Dir()+"/locks/logins", os.O_RDWR|os.O_CREATE, flock.Exclusive)
	if err != nil {
		return nil, fmt.Errorf("lock logins: %w", err)
	}
	return lock, nil
}

// readSecret reads what the caller passes on a descriptor, so that no other process sees it.
func readSecret() ([]byte, error) {
	f := os.NewFile(secretFD, "secret")
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return nil, fmt.Errorf("read password: %w", err)
	}
	if len(text) > maxSecret {
		return nil, usage("the password is longer than %d bytes", maxSecret)
	}
	return text, nil
}
