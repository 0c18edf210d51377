package executor

import (
	"encoding/json"
	"slices"

	"demesne/build/containerfile"
	"demesne/images/oci"
	"demesne/runner"
	"demesne/session"
)

// keyVersion changes when a step's result does for the same inputs.
const keyVersion = 3

// inputs are all that the result of a step depends on. Secrets are not part of it, nor is the content of a cache mount.
// All text in it is UTF-8, which package build checks, so two inputs never have one JSON.
type inputs struct {
	Version int
	Below   []oci.Digest // see stage.below
	Run     *containerfile.Run
	Copy    *containerfile.Copy
	Content []oci.Digest // of the files that it copies
	Network []string     // what a Run with a network may reach
	Epoch   string
}

func (in inputs) key() (oci.Digest, error) {
	in.Version = keyVersion
	text, err := json.Marshal(in)
	return oci.DigestOf(text), err
}

// networkOf returns what a RUN may reach. A build without a network must not take a result that was made with one.
func networkOf(r *containerfile.Run, e session.Egress) []string {
	if r == nil || r.Network == "none" || e.Mode == runner.NoEgress {
		return nil
	}
	allow := slices.Clone(e.Allow)
	slices.Sort(allow)
	return append([]string{e.Mode}, slices.Compact(allow)...)
}
