package runner

import (
	"errors"
	"fmt"
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

// aliasesMost bounds the aliases of one sandbox.
const aliasesMost = 32

// CheckGroup checks the names of a group and of a member's aliases.
func (e *Egress) CheckGroup() error {
	if n := len(e.Aliases); n > aliasesMost {
		return fmt.Errorf("%d aliases; at most %d are possible", n, aliasesMost)
	}
	for _, name := range append([]string{e.Group}, e.Aliases...) {
		if err := CheckMember(name); err != nil {
			return err
		}
	}
	return nil
}

// OwnNames returns the names by which the group of a sandbox knows it, except its id.
func (s *Spec) OwnNames() (names []string) {
	m, ok := s.Member("")
	if ok && m.Name != "" {
		names = append(names, m.Name)
	}
	if ok {
		names = append(names, s.Egress.Aliases...)
	}
	return names
}

// InGroup returns the name of a sandbox for its callers: names are unique in a group.
func InGroup(name, group string) string {
	if name == "" || group == "" {
		return name
	}
	return name + "." + group
}

// FullName returns the name of a sandbox with a group for its callers. The group that a Docker socket makes for the sandbox and its
// containers, named as its last alias, is no part of it.
func (s *Spec) FullName() string {
	e := s.Egress
	if n := len(e.Aliases); n > 0 && e.Aliases[n-1] == e.Group && s.Served() != nil {
		return s.Name
	}
	return InGroup(s.Name, e.Group)
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
