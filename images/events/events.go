package events

import (
	"time"

	"demesne/images/oci"
)

// An Event is one line of JSON on the stdout of demesne-images:
//
//	pull    {"event":"layer","digest":D,"state":"waiting","total":N}
//	        {"event":"layer","digest":D,"state":"pulling","bytes":n,"total":N}     at most 10 a second
//	        {"event":"layer","digest":D,"state":"pulled","layer":{…}}              in the store now
//	        {"event":"layer","digest":D,"state":"present","layer":{…}}             was there before
//	        {"event":"retry","digest":D,"in":ns,"why":…}                           D is "" for a manifest
//	        {"event":"result","digest":M}                                          the image is in the store
//	unpack  {"event":"layer","diffid":I,"state":"unpacking","bytes":n,"total":N}
//	        {"event":"layer","diffid":I,"state":"done"}                            unpacked now
//	        {"event":"layer","diffid":I,"state":"present"}                         was before
//	        {"event":"notice","diffid":I,"why":…}                                  something a user should know
//	sweep   {"event":"result","freed":bytes}
//	any     {"event":"error","text":…,"hint":…,"code":…}                           the last line; exit status 1
//
// A program ends with "result" or "error"; unpack may end with neither. A line is at most 64 KiB.
type Event struct {
	Event  Kind          `json:"event"`
	State  State         `json:"state,omitempty"`
	Digest oci.Digest    `json:"digest,omitempty"` // of a layer's blob; of the manifest in a result
	DiffID oci.Digest    `json:"diffid,omitempty"` // of the layer, unpacked
	Layer  *oci.Layer    `json:"layer,omitempty"`  // of a layer that landed: what unpack wants to know
	Bytes  int64         `json:"bytes,omitempty"`
	Total  int64         `json:"total,omitempty"`
	In     time.Duration `json:"in,omitempty"`
	Why    string        `json:"why,omitempty"`
	Freed  int64         `json:"freed,omitempty"`
	Text   string        `json:"text,omitempty"`
	Hint   string        `json:"hint,omitempty"`
	Code   Code          `json:"code,omitempty"`
}

// Kind says what an Event tells.
type Kind string

// The kinds of events.
const (
	Layer  Kind = "layer"
	Retry  Kind = "retry"
	Notice Kind = "notice"
	Result Kind = "result"
	Error  Kind = "error"
)

// State is how far a layer is.
type State string

// The states of a layer.
const (
	Waiting   State = "waiting"
	Pulling   State = "pulling"
	Pulled    State = "pulled"
	Present   State = "present"
	Unpacking State = "unpacking"
	Done      State = "done"
)

// Code classes a [Failure], so that nobody has to match one by its text.
type Code string

// The codes of failures.
const (
	CodeInternal    Code = "internal"
	CodeInvalid     Code = "invalid"     // the request itself is wrong
	CodeNotFound    Code = "not-found"   // no such image there
	CodeDenied      Code = "denied"      // credentials are missing or wrong
	CodeUnreachable Code = "unreachable" // no registry answered
	CodeBusy        Code = "busy"        // the registry wants fewer requests
	CodePlatform    Code = "platform"    // no image for this machine
	CodeUnsupported Code = "unsupported" // a media type or format we cannot read
	CodePolicy      Code = "policy"      // a signature is required and missing or wrong
	CodeRefused     Code = "refused"     // a layer does what no layer may
	CodeCorrupt     Code = "corrupt"     // content is not what its digest says
	CodeNoSpace     Code = "no-space"
	CodeCanceled    Code = "canceled"
)

// A Failure is an error of demesne-images.
type Failure struct {
	Code Code
	Text string
	Hint string // what to type about it, one line; only programs print it
}

func (f *Failure) Error() string { return f.Text }
