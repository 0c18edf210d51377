package desk

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"

	"demesne/mcp/work"
	"demesne/runner"
	"demesne/runner/wire"
)

// A sandbox with a key is known by its name, which is made of the key and of what was asked
// for: key-KEY-WANTS, both digests. So whoever asks for the same finds it, in whatever
// process, and one that was made for other wants can be told and is ended.

// errBoth says that a sandbox has one name only.
var errBoth = errors.New("name and key: a sandbox has one of them")

// keyName is the name of r's sandbox, and the part of it that all with r's key share.
func keyName(r work.Request) (name, key string, err error) {
	if r.Spec.Name != "" {
		return "", "", errBoth
	}
	wants, err := json.Marshal(r)
	if err != nil {
		return "", "", err
	}
	key = "key-" + digest([]byte(r.Key)) + "-"
	return key + digest(wants), key, nil
}

// digest is short enough for a name, and long enough for nobody to find a second like it.
func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:12])
}

// keyed returns the sandbox with r's key, made if it is not there or was made for another
// request.
func (d *Desk) keyed(ctx context.Context, r work.Request, w work.Watch) (*work.Created, error) {
	name, key, err := keyName(r)
	if err != nil {
		return nil, err
	}
	r.Spec.Name = name
	for {
		info, err := d.sift(ctx, name, key)
		if err != nil {
			return nil, err
		}
		if info != nil {
			return &work.Created{ID: info.ID, OutputDir: info.Out, Receipt: info.Receipt, Expires: info.Expires}, nil
		}
		c, err := d.create(ctx, r, w)
		var e *wire.Error
		if !errors.As(err, &e) || e.Code != wire.CodeExists || ctx.Err() != nil {
			return c, err
		}
		// Somebody else has made it since.
	}
}

// sift finds the live sandbox called name, and ends others of the same key.
func (d *Desk) sift(ctx context.Context, name, key string) (found *runner.Info, err error) {
	err = d.conn.with(ctx, func(client *runner.Client) error {
		infos, err := client.List(ctx)
		if err != nil {
			return err
		}
		for _, i := range infos {
			switch {
			case i.Name == name && i.State == runner.Running:
				found, err = client.Inspect(ctx, i.ID)
			case i.Name != name && strings.HasPrefix(i.Name, key):
				err = client.Stop(ctx, i.ID)
			}
			if err != nil && !ended(err) {
				return err
			}
		}
		return nil
	})
	return found, err
}

// ended says that a sandbox is not there any more, which may happen to any at any time.
func ended(err error) bool {
	var e *wire.Error
	return errors.As(err, &e) && e.Code == wire.CodeUnknown
}
