package e2b

import (
	"fmt"
	"strings"
	"unicode"

	"demesne/images"
	"demesne/session"
)

// registryLogin is how a client may pull FromImage. No record and no log has it.
type registryLogin struct {
	Type     string `json:"type"`
	Username string `json:"username"`
	Password string `json:"password"`
	GCP      string `json:"serviceAccountJson"`
}

// gcpUser is the user name with which the registries of Google Cloud take a service account's key as the password.
const gcpUser = "_json_key"

// maxLogin bounds a user name and a password, which is what demesne-images reads.
const maxLogin = 64 << 10

// login returns the login for FromImage; nil: the request has no login.
func (q *recipe) login() (*images.Login, error) {
	refused := func(why string) (*images.Login, error) {
		return nil, fmt.Errorf("%w: fromImageRegistry: %s", session.ErrInvalid, why)
	}
	r := q.Registry
	if r == nil {
		return nil, nil
	}
	l := &images.Login{User: r.Username, Password: r.Password}
	switch r.Type {
	case "registry":
	case "gcp":
		l = &images.Login{User: gcpUser, Password: r.GCP}
	case "aws":
		return refused("demesne does not exchange AWS keys for a password: give fromImage the user name AWS and what aws ecr get-login-password prints")
	default:
		return refused("type must be registry or gcp")
	}
	switch {
	case q.FromImage == "" || q.FromTemplate != "":
		return refused("it is for fromImage")
	case l.User == "" || l.Password == "":
		return refused("give a user name and a password")
	case len(l.User) > maxLogin || len(l.Password) > maxLogin:
		return refused("the user name or the password is too long")
	case strings.ContainsFunc(l.User, func(r rune) bool { return r == ':' || unicode.IsControl(r) }):
		return refused("the user name has a colon or a control character")
	}
	return l, nil
}
