package runner

import (
	"errors"
	"strings"
)

// Member is a sandbox in its group. The sandboxes of a group reach each other by Name.
type Member struct {
	Group string `json:"group"` // with the frontend: a group belongs to one frontend
	Name  string `json:"name"`
}

// ErrMember is the error of CheckMember.
var ErrMember = errors.New("a group and its members have names of lower-case letters, digits, - and _, and do not begin with -; at most 63 bytes, not localhost or demesne")

// CheckMember checks the name of a group, or of a member. It must be one label of a host name: it then means no host of the
// Internet.
func CheckMember(name string) error {
	if name == "" || len(name) > NameMax || name[0] == '-' || name == "localhost" || name == "demesne" ||
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
		return ErrMember
	}
	return nil
}

// InGroup returns the name of a sandbox for its callers: names are unique in a group.
func InGroup(name, group string) string {
	if name == "" || group == "" {
		return name
	}
	return name + "." + group
}

// Member returns the place in its group of the sandbox with that id. ok is false if the sandbox has no group.
func (s *Spec) Member(id string) (m Member, ok bool) {
	if s.Egress == nil || s.Egress.Group == "" {
		return m, false
	}
	name := strings.TrimSuffix(s.Frontend.Short(s.Name), "."+s.Egress.Group)
	if name == "" {
		name = id
	}
	return Member{Group: string(s.Frontend) + "/" + s.Egress.Group, Name: name}, true
}
