package events

import (
	"time"

	"demesne/images/oci"
)

// An Event is one line of JSON on the stdout of demesne-images:
//
//	pull    {"event":"layer","digest":D,"state":"waiting","total":N}
//	        {"event":"layer","digest":D,"state":"pulling","bytes":n,"total":N}     at most 10 a second
//	        {"event":"layer","digest":D,"state":"pulled","layer":{…}}              now in the store
//	        {"event":"layer","digest":D,"state":"present","layer":{…}}             already in the store
//	        {"event":"retry","digest":D,"in":ns,"why":…}                           D is "" for a manifest
//	        {"event":"result","digest":M}                                          the image is in the store
//	unpack  {"event":"layer","diffid":I,"state":"unpacking","bytes":n,"total":N}
//	        {"event":"layer","diffid":I,"state":"done"}                            now unpacked
//	        {"event":"layer","diffid":I,"state":"present"}                         already unpacked
//	        {"event":"notice","diffid":I,"why":…}                                  a warning for the user
//	push    {"event":"layer","digest":D,"state":"pushing","bytes":n,"total":N}     D is the blob in the store
//	        {"event":"layer","digest":D,"state":"pushed","layer":{…}}              now in the registry, as "layer" says
//	        {"event":"layer","digest":D,"state":"mounted","layer":{…}}             the same, from another repository
//	        {"event":"layer","digest":D,"state":"present","layer":{…}}             the repository had it
//	        {"event":"result","digest":M}                                          the tag has the image
//	login   {"event":"result","why":FILE}                                          where the credentials are stored
//	sweep   {"event":"result","freed":bytes}
//	build   {"event":"notice","why":…}                                             a step
//	        {"event":"result","digest":M}                                          the image is in the store
//	        {"event":"error","text":…,"hint":…,"line":N,"why":…}                   at line N of the Containerfile: why
//	any     {"event":"error","text":…,"hint":…,"code":…,"in":ns}                           the last line; exit status 1
//
// A program ends with "result" or "error"; unpack may end with neither. A line is at most 64 KiB.
type Event struct {
	Event  Kind          `json:"event"`
	State  State         `json:"state,omitempty"`
	Digest oci.Digest    `json:"digest,omitempty"` // of a layer's blob; in a result, of the manifest
	DiffID oci.Digest    `json:"diffid,omitempty"` // of the layer
	Layer  *oci.Layer    `json:"layer,omitempty"`  // a downloaded layer, as unpack expects it; a pushed one, as stored in the registry
	Bytes  int64         `json:"bytes,omitempty"`
	Total  int64         `json:"total,omitempty"`
	In     time.Duration `json:"in,omitempty"`
	Why    string        `json:"why,omitempty"`
	Freed  int64         `json:"freed,omitempty"`
	Left   []string      `json:"left,omitempty"` // directories with files that the ids of another id map must remove
	Text   string        `json:"text,omitempty"`
	Hint   string        `json:"hint,omitempty"`
	Line   int           `json:"line,omitempty"`
	Code   Code          `json:"code,omitempty"`
}

// Kind is the kind of an [Event].
type Kind string

// The kinds of events.
const (
	Layer  Kind = "layer"
	Retry  Kind = "retry"
	Notice Kind = "notice"
	Result Kind = "result"
	Error  Kind = "error"
)

// State is the state of a layer.
type State string

// The states of a layer.
const (
	Waiting   State = "waiting"
	Pulling   State = "pulling"
	Pulled    State = "pulled"
	Present   State = "present"
	Unpacking State = "unpacking"
	Done      State = "done"
	Pushing   State = "pushing"
	Pushed    State = "pushed"
	Mounted   State = "mounted"
)

// Code classifies a [Failure], so that callers need not match its text.
type Code string

// The codes of failures.
const (
	CodeInternal    Code = "internal"
	CodeInvalid     Code = "invalid"     // the request itself is wrong
	CodeNotFound    Code = "not-found"   // the registry has no such image
	CodeDenied      Code = "denied"      // credentials are missing or wrong
	CodeUnreachable Code = "unreachable" // the registry did not answer, or answered with an error of its own
	CodeBusy        Code = "busy"        // the registry limits requests
	CodePlatform    Code = "platform"    // no image for the platform
	CodeUnsupported Code = "unsupported" // an unsupported media type or format
	CodeNoImage     Code = "no-image"    // content of another kind than a container image, such as a web page or a chart
	CodePolicy      Code = "policy"      // a required signature is missing or wrong
	CodeRefused     Code = "refused"     // a layer contains a forbidden entry
	CodeCorrupt     Code = "corrupt"     // content does not match its digest
	CodeNoSpace     Code = "no-space"
	CodeCanceled    Code = "canceled"
)

// A Failure is an error of demesne-images.
type Failure struct {
	Code Code
	Text string
	Hint string        // a command that may help, one line; only programs print it
	Wait time.Duration // that a busy registry asks for; 0: none
}

func (f *Failure) Error() string { return f.Text }
