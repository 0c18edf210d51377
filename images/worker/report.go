package worker

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"
	"time"

	"demesne/images"
	"demesne/images/archive"
	"demesne/images/events"
	"demesne/images/oci"
	"demesne/images/pull"
	"demesne/internal/lazy"
	"demesne/rootfs/unpack"
)

// every is the minimum interval between progress events of one layer.
const every = 100 * time.Millisecond

// reporter writes events; it is safe for concurrent use.
type reporter struct {
	mu   sync.Mutex
	json *json.Encoder
	said map[oci.Digest]time.Time // time of each layer's last progress event

	hidden    *strings.Replacer // blanks a password; nil: no password
	plainHTTP string            // hint for a registry without TLS, in place of a line of registries.conf
}

func newReporter(w io.Writer) *reporter {
	return &reporter{json: json.NewEncoder(w), said: map[oci.Digest]time.Time{}}
}

// send writes an event. It drops progress events that follow too soon. It ignores write errors: if the reader
// is gone, the lifeline ends the command.
func (r *reporter) send(e events.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hidden != nil {
		e.Text, e.Why, e.Hint = r.hidden.Replace(e.Text), r.hidden.Replace(e.Why), r.hidden.Replace(e.Hint)
	}
	if e.State == events.Pulling || e.State == events.Pushing || e.State == events.Unpacking {
		layer, now := e.Digest+e.DiffID, time.Now()
		if now.Sub(r.said[layer]) < every {
			return
		}
		r.said[layer] = now
	}
	_ = r.json.Encode(e)
}

// hide blanks a password in all later texts, also in the forms in which requests have it.
func (r *reporter) hide(l images.Login) {
	r.mu.Lock()
	defer r.mu.Unlock()
	const blank = "[hidden]"
	pair := []byte(l.User + ":" + l.Password)
	r.hidden = strings.NewReplacer(
		base64.StdEncoding.EncodeToString(pair), blank, base64.URLEncoding.EncodeToString(pair), blank,
		url.QueryEscape(l.Password), blank, l.Password, blank,
	)
}

// fail writes the last event of a command that failed.
func (r *reporter) fail(err error) {
	var known *events.Failure
	e := events.Event{Event: events.Error, Text: pull.OneLine(err), Code: classify(err)}
	if errors.As(err, &known) {
		e.Code, e.Hint = known.Code, known.Hint
	}
	if busy, ok := errors.AsType[*pull.Error](err); ok {
		e.In = busy.Wait
	}
	var invalid *archive.InvalidError
	switch {
	case e.Hint == "" && errors.Is(err, archive.ErrDense):
		e.Hint = "if you trust it, decompress it first: uncompressed archives have no such limit"
	case e.Hint == "" && errors.As(err, &invalid):
		e.Hint = notArchive
	case e.Hint == "" && pull.PlainHTTP(err) && r.plainHTTP != "":
		e.Hint = r.plainHTTP
	case e.Hint == "" && pull.PlainHTTP(err) && plainHost.Get().MatchString(pull.Host(err)):
		e.Hint = fmt.Sprintf(allowHTTP, pull.Host(err))
	case e.Hint == "":
		e.Hint = hints[e.Code]
	}
	r.send(e)
}

// classify returns the code for an error of any package that commands call.
func classify(err error) events.Code {
	var refused *unpack.RefusedError
	var invalid *archive.InvalidError
	switch {
	case errors.As(err, &refused) && refused.Reason == unpack.BadMedia:
		return events.CodeUnsupported
	case errors.As(err, &refused):
		return events.CodeRefused
	case errors.Is(err, unpack.ErrCorrupt):
		return events.CodeCorrupt
	case errors.As(err, &invalid):
		return events.CodeUnsupported
	}
	return pull.Classify(err)
}

const notArchive = "import takes a directory, a tar of one (also gzip or zstd), or an archive from podman save, docker save or demesne save"

// allowHTTP is a line to type: registries.conf has the word for a registry without TLS.
const allowHTTP = `if you trust the network to it: mkdir -p ~/.config/containers/registries.conf.d && ` +
	`printf '[[registry]]\nlocation = "%[1]s"\ninsecure = true\n' > ~/.config/containers/registries.conf.d/%[1]s.conf`

// plainHost matches a host and a port that need no quotes.
var plainHost = lazy.Regexp{Expr: `^[A-Za-z0-9.-]+(:[0-9]+)?$`}

// hints are the hints for failures; a code without an entry needs no hint.
var hints = map[events.Code]string{
	events.CodeDenied:      "check the name, or log in first: demesne login REGISTRY",
	events.CodeNotFound:    "check the name and the tag",
	events.CodeUnreachable: "check the network and HTTPS_PROXY, and the registry's certificate (certs.d) and mirrors (registries.conf); stored images run without a network",
	events.CodeBusy:        "wait, log in for a higher limit, or set up a mirror in registries.conf",
	events.CodePlatform:    "name a tag that has an image for this machine",
	events.CodeUnsupported: "re-tag or re-build it as an OCI image with gzip or zstd layers",
	events.CodeNoImage:     "check the name: it leads to a web page (or a login page of the network), or to a chart or another artifact, which helm pull oci://NAME or oras pull NAME fetches",
	events.CodePolicy:      "the requirement is in policy.json: ~/.config/containers or /etc/containers",
	events.CodeRefused:     "the image is broken or hostile and cannot be unpacked",
	events.CodeCorrupt:     "run demesne images check, then pull again",
	events.CodeNoSpace:     "free space with demesne gc, or set DEMESNE_IMAGE_STORE to a directory on another disk",
}
