package rest

import (
	"cmp"
	"context"
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"demesne/client"
	"demesne/runner"
)

// listInput is the request of list: see [client.SandboxFilter].
type listInput struct {
	Limit     int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Sandboxes of this page at most"`
	Cursor    string `query:"cursor" maxLength:"200" doc:"The field next of the page before, with the same filter and order"`
	State     string `query:"state" enum:"running,paused,stopped,snapshot,unreadable" doc:"Sandboxes in this state"`
	Name      string `query:"name" maxLength:"128" doc:"Sandboxes whose name begins so"`
	Namespace string `query:"namespace" maxLength:"63" doc:"Sandboxes of this namespace. The operator sees all; other callers see only their own namespace"`
	Order     string `query:"order" enum:"newest,oldest" default:"newest" doc:"Which are first"`
}

func (s *Server) list(ctx context.Context, in *listInput) (p client.SandboxPage, err error) {
	after, err := placeOf(in.Cursor)
	if err != nil {
		return p, err
	}
	infos, err := s.service(ctx).List(ctx)
	if err != nil {
		return p, err
	}
	found, next := in.page(infos, after)
	if s.opts.Listed != nil {
		s.opts.Listed(found)
	}
	p = client.SandboxPage{Items: []client.Sandbox{}, Next: next}
	for _, i := range found {
		a := sandboxOf(&i)
		a.Ports = portAPI{s}.portsOf(i.ID, a.Ports)
		p.Items = append(p.Items, a)
	}
	return p, nil
}

// place is where a sandbox is in a list. It stays the same if others are made or removed.
type place struct {
	created time.Time
	id      string
}

func (p place) compare(o place) int {
	return cmp.Or(p.created.Compare(o.created), strings.Compare(p.id, o.id))
}

// cursor returns a place as clients have it.
func (p place) cursor() string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(p.created.UnixNano(), 10) + " " + p.id))
}

// placeOf is the inverse of cursor. An empty cursor has no place.
func placeOf(cursor string) (*place, error) {
	if cursor == "" {
		return nil, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	created, id, found := strings.Cut(string(text), " ")
	n, wrong := strconv.ParseInt(created, 10, 64)
	if err != nil || wrong != nil || !found {
		e := problem(http.StatusUnprocessableEntity, "validation failed")
		e.Data = []client.Detail{{Location: "query.cursor", Message: "not from an answer of this server"}}
		return nil, e
	}
	return &place{time.Unix(0, n), id}, nil
}

// page returns the sandboxes of a page, and the cursor of the next one, which is empty if none follows. after is where the page
// before ended; nil: this is the first one.
func (in *listInput) page(all []runner.Info, after *place) (found []runner.Info, next string) {
	at := func(i runner.Info) place { return place{i.Created, i.ID} }
	compare := func(a, b place) int { return b.compare(a) }
	if in.Order == "oldest" {
		compare = place.compare
	}
	for _, i := range all {
		if in.has(&i) && (after == nil || compare(at(i), *after) > 0) {
			found = append(found, i)
		}
	}
	slices.SortFunc(found, func(a, b runner.Info) int { return compare(at(a), at(b)) })
	if len(found) > in.Limit {
		found = found[:in.Limit]
		next = at(found[in.Limit-1]).cursor()
	}
	return found, next
}

func (in *listInput) has(i *runner.Info) bool {
	return i.Spec.Lifetime == runner.Persistent && !i.Spec.OfBuild() && strings.HasPrefix(i.Name, in.Name) &&
		(in.State == "" || in.State == string(i.State)) && (in.Namespace == "" || in.Namespace == i.Spec.Frontend.Namespace())
}
