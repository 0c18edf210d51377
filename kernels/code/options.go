package code

import (
	"demesne/kernels/languages"
	"demesne/session"
)

// Options describes a session.
type Options struct {
	Sandbox      *session.Sandbox // an existing one, which outlives the session; nil: Create says which
	Create       session.CreateOptions
	Language     languages.Language
	PreferOwn    bool                   // the driver precedes a kernelspec whose kernel prints values; see [languages.Language.Prints]
	Kernel       string                 // name of a kernelspec of the root, or Driver; empty: the language's kernelspec, else the driver
	Dir          string                 // the kernel's working directory; empty: the sandbox's
	Env          []string               // K=V, for the kernel
	Dependencies []languages.Dependency // installed before the first execution; see Session.Installed
}
