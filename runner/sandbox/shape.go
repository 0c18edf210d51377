package sandbox

import (
	"encoding/json"

	"demesne/runner"
)

// ShapeOf returns the part of an admitted Spec that does not depend on the future owner: as text, and as the Spec to
// make a sandbox from. ok is false if no sandbox can be prepared for the Spec. egress is the whole Egress; nil: none.
// ShapeOf is pure.
func ShapeOf(spec runner.Spec, egress *runner.Egress) (shape string, rest runner.Spec, ok bool) {
	if spec.Lifetime != runner.OneShot || spec.Nesting || len(spec.Publish) > 0 || len(spec.Inputs) > 0 {
		return "", spec, false
	}
	rest = spec
	if r := spec.Rootfs; r == nil {
		rest.Exposed = false // only matters for set-user-ID files of an image's packages
	} else if len(r.Layers) == 0 { // a directory, which its caller opened
		return "", spec, false
	}
	if egress != nil {
		if len(egress.Secrets) > 0 { // their certificate authority is among the tree's files
			return "", spec, false
		}
		rest.Egress = &runner.Egress{GoProxy: egress.GoProxy}
	}
	rest.Name, rest.Out, rest.Workspace, rest.Require, rest.Granted, rest.Frontend = "", "", "", "", "", ""
	text, err := json.Marshal(rest)
	return string(text), rest, err == nil
}
