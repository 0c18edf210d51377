package sandbox

import (
	"encoding/json"

	"demesne/runner"
)

// ShapeOf returns the part of an admitted Spec that does not depend on the future owner: as text, and as the Spec to
// make a sandbox from. ok is false if no sandbox can be prepared for the Spec. egress is the whole Egress; nil: none.
// ShapeOf is pure.
func ShapeOf(spec runner.Spec, egress *runner.Egress) (shape string, rest runner.Spec, ok bool) {
	// A key may name a sandbox that exists: a prepared one would then be taken for nothing.
	if spec.Lifetime == runner.Attached || spec.Key != "" || spec.Nesting || len(spec.Publish) > 0 || len(spec.Inputs) > 0 || len(spec.Mounts) > 0 || len(spec.Tmpfs) > 0 {
		return "", spec, false
	}
	rest = spec
	if r := spec.Rootfs; r == nil {
		rest.Exposed = false // only matters for set-user-ID files of an image's packages
	} else if len(r.Layers) == 0 || r.Aside { // a directory, which its caller opened; one step of a build
		return "", spec, false
	}
	if egress != nil {
		// The authorities of secrets and of the caller are among the tree's files; listeners are made before PID 1.
		if len(egress.Secrets) > 0 || egress.PackageAge > 0 || len(egress.Trust.PEM) > 0 || len(egress.Listen)+len(egress.HostPorts) > 0 || egress.Group != "" {
			return "", spec, false
		}
		rest.Egress = &runner.Egress{GoProxy: egress.GoProxy, Trust: egress.Trust}
		for _, r := range egress.Routes { // their sockets are open before PID 1 starts
			rest.Egress.Routes = append(rest.Egress.Routes, runner.Route{Port: r.Port})
		}
	}
	rest.Defaults = runner.Defaults{}
	rest.TTL, rest.MaxAge, rest.PauseIdle, rest.Share, rest.Given = 0, 0, 0, "", nil
	rest.Name, rest.Out, rest.Workspace, rest.Require, rest.Granted, rest.Frontend = "", "", "", "", "", ""
	text, err := json.Marshal(rest)
	return string(text), rest, err == nil
}
