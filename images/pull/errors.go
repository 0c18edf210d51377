package pull

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"syscall"
	"time"

	"github.com/docker/distribution/registry/api/errcode"
	v2 "github.com/docker/distribution/registry/api/v2"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/signature"

	"demesne/images"
	"demesne/images/events"
)

// An Error is an error with a known class.
type Error struct {
	Code events.Code
	Err  error
	Wait time.Duration // that the registry asks for; 0: none
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

func errorf(code events.Code, format string, args ...any) error {
	return &Error{Code: code, Err: fmt.Errorf(format, args...)}
}

// spoken maps a class to the words that Speak puts before the library's error, which may contain only a
// status number.
var spoken = map[events.Code]string{
	events.CodeDenied:      "denied",
	events.CodeNotFound:    "not found",
	events.CodeBusy:        "too many requests",
	events.CodeUnreachable: "no answer",
}

// Speak adds the words of the error's class, unless the error is an [Error].
func Speak(err error) error {
	var known *Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	err = quiet(err)
	if word := spoken[Classify(err)]; word != "" {
		return fmt.Errorf("%s: %w", word, err)
	}
	return err
}

// quiet returns err without what a server sent that does not answer as a registry does. The library shows the beginning of
// such a body; a registry can redirect a request to a page that only this machine can read.
func quiet(err error) error {
	var already *bodiless
	if errors.As(err, &already) {
		return err
	}
	known := notJSON(err)
	for _, e := range chain(err) {
		v := reflect.Indirect(reflect.ValueOf(e))
		known = known || v.Kind() == reflect.Struct && v.FieldByName("Response").IsValid()
	}
	if known {
		return &bodiless{err}
	}
	return err
}

// notJSON reports whether err comes from a text that is not the expected JSON.
func notJSON(err error) bool {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	var date *time.ParseError
	return errors.As(err, &syntax) || errors.As(err, &kind) || errors.As(err, &date)
}

// bodiless is an error whose text would have content of an answer.
type bodiless struct{ error }

func (b *bodiless) Unwrap() error { return b.error }

func (b *bodiless) Error() string {
	if status := statusOf(b.error); status != 0 {
		return fmt.Sprintf("%d %s: the answer is not a registry's", status, http.StatusText(status))
	}
	return "the answer is not a registry's"
}

// Classify returns the kind of failure, judged by the types that err wraps. The first matching class
// wins. The order matters: this module's errors are more specific than the errors they wrap.
func Classify(err error) events.Code {
	for _, class := range []func(error) events.Code{ours, system, answered, unanswered} {
		if code := class(err); code != "" {
			return code
		}
	}
	return events.CodeInternal
}

func ours(err error) events.Code {
	var e *Error
	var refused signature.PolicyRequirementError
	switch {
	case errors.As(err, &e):
		return e.Code
	case errors.As(err, &refused):
		return events.CodePolicy
	case errors.Is(err, images.ErrCorrupt):
		return events.CodeCorrupt
	case errors.Is(err, images.ErrNotFound):
		return events.CodeNotFound
	}
	return ""
}

func system(err error) events.Code {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return events.CodeNoSpace
	case errors.Is(err, errIdle), errors.Is(err, errRedirects), errors.Is(err, context.DeadlineExceeded):
		return events.CodeUnreachable
	case errors.Is(err, context.Canceled):
		return events.CodeCanceled
	}
	return ""
}

// words maps the error codes in a registry's response body to classes. They are more specific than the
// status: Docker Hub answers 401 for a repository that does not exist.
var words = map[errcode.ErrorCode]events.Code{
	errcode.ErrorCodeUnauthorized:    events.CodeDenied,
	errcode.ErrorCodeDenied:          events.CodeDenied,
	errcode.ErrorCodeTooManyRequests: events.CodeBusy,
	errcode.ErrorCodeUnavailable:     events.CodeUnreachable,
	v2.ErrorCodeManifestUnknown:      events.CodeNotFound,
	v2.ErrorCodeNameUnknown:          events.CodeNotFound,
	v2.ErrorCodeBlobUnknown:          events.CodeNotFound,
}

func answered(err error) events.Code {
	var coder errcode.ErrorCoder
	if errors.As(err, &coder) {
		if code, ok := words[coder.ErrorCode()]; ok {
			return code
		}
	}
	var unauthorized docker.ErrUnauthorizedForCredentials
	switch {
	case errors.As(err, &unauthorized):
		return events.CodeDenied
	case errors.Is(err, docker.ErrTooManyRequests):
		return events.CodeBusy
	}
	switch status := statusOf(err); {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return events.CodeDenied
	case status == http.StatusNotFound:
		return events.CodeNotFound
	case status == http.StatusTooManyRequests:
		return events.CodeBusy
	case status >= 500:
		return events.CodeUnreachable
	}
	return ""
}

// statusOf returns the HTTP status in err, or 0. The library has two error types for it and exports only
// one; both have a field StatusCode.
func statusOf(err error) int {
	for _, e := range chain(err) {
		v := reflect.Indirect(reflect.ValueOf(e))
		if v.Kind() != reflect.Struct {
			continue
		}
		if f := v.FieldByName("StatusCode"); f.IsValid() && f.CanInt() {
			return int(f.Int())
		}
	}
	return 0
}

// chain returns err and all errors that it wraps.
func chain(err error) []error {
	if err == nil {
		return nil
	}
	all := []error{err}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		all = append(all, chain(e.Unwrap())...)
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			all = append(all, chain(inner)...)
		}
	}
	return all
}

func unanswered(err error) events.Code {
	var op *net.OpError
	var dns *net.DNSError
	var timeout net.Error
	var request *url.Error
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax): // of a token
		return events.CodeNoImage
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE),
		errors.As(err, &op), errors.As(err, &dns), untrusted(err), errors.As(err, &request),
		errors.As(err, &timeout) && timeout.Timeout():
		return events.CodeUnreachable
	}
	return ""
}

// untrusted reports whether the registry was reached, but its certificate is not trusted or it does not
// speak TLS. A retry cannot help.
func untrusted(err error) bool {
	var cert *tls.CertificateVerificationError
	var header tls.RecordHeaderError
	var alert tls.AlertError
	var authority x509.UnknownAuthorityError
	return errors.As(err, &cert) || errors.As(err, &header) || errors.As(err, &alert) || errors.As(err, &authority)
}

// badScheme reports whether the registry redirected to an address that is neither HTTP nor HTTPS.
func badScheme(err error) bool {
	var request *url.Error
	if !errors.As(err, &request) {
		return false
	}
	u, err := url.Parse(request.URL)
	return err == nil && u.Scheme != "https" && u.Scheme != "http"
}

// PlainHTTP reports whether the registry does not speak TLS.
func PlainHTTP(err error) bool { return errors.Is(err, http.ErrSchemeMismatch) }

// Host returns the host of the request that failed, or "".
func Host(err error) string {
	var request *url.Error
	if !errors.As(err, &request) {
		return ""
	}
	u, err := url.Parse(request.URL)
	if err != nil {
		return ""
	}
	return u.Host
}

// Transient reports whether a retry may succeed. It is false for a host that cannot be resolved or
// dialled, so that a mistyped registry name fails at once. A temporary DNS failure is transient.
func Transient(err error) bool {
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case Classify(err) != events.CodeUnreachable, untrusted(err), errors.Is(err, errRedirects), PlainHTTP(err), badScheme(err):
		return false
	case errors.As(err, &dns):
		return dns.IsTemporary || dns.IsTimeout
	case errors.As(err, &op) && op.Op == "dial":
		return false
	}
	return true
}
