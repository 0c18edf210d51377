package main

import (
	"encoding/json"

	"demesne/images/build"
	"demesne/images/oci"
)

// keyVersion changes when a step's result does for the same inputs.
const keyVersion = 2

// keyOf returns the key of a step: all that its result depends on. Secrets are not part of it, nor is the content of a
// cache mount. below are the layers that the step sees; content sums up the files that it copies.
func keyOf(below []oci.Layer, s *build.Step, content []oci.Digest, epoch string) (oci.Digest, error) {
	in := struct {
		Version int
		Below   []oci.Digest
		Run     *build.Run
		Copy    *build.Copy
		Content []oci.Digest
		Epoch   string
	}{keyVersion, nil, s.Run, s.Copy, content, epoch}
	for _, l := range below {
		in.Below = append(in.Below, l.DiffID)
	}
	text, err := json.Marshal(in)
	return oci.DigestOf(text), err
}
