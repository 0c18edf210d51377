package rest

import "testing"

// TestGroupPorts checks that the ports of a group's sandboxes end with the group.
func TestGroupPorts(t *testing.T) {
	r := newRig(t)
	r.steps([]step{
		{"POST /v1/sandboxes", `{"name":"db","group":"shop"}`, 201, ""}, {"POST /v1/sandboxes/db.shop/ports", `{"to":80}`, 201, ""},
		{"DELETE /v1/groups/shop", "", 204, ""},
	})
	if n := len(r.api.published.all); n != 0 {
		t.Errorf("%d ports of a removed group", n)
	}
}
