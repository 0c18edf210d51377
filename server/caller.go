package server

import (
	"context"

	"demesne/runner"
)

// Caller is the authenticated sender of a request.
type Caller struct {
	Name      string // for the audit log: the subject of a JWT, or the name of a token
	Namespace string // whose sandboxes, secrets and limits the caller has; empty: no namespace
	Operator  bool   // the operator sees every namespace
}

// Operator is the user that runs the server.
var Operator = Caller{Name: "operator", Operator: true}

// InNamespace returns the caller that acts for a namespace, where no request has one: a timer, or the port of a sandbox.
// That of no namespace is the operator.
func InNamespace(namespace string) Caller {
	if namespace == "" {
		return Operator
	}
	return Caller{Name: "server", Namespace: namespace}
}

// Sees reports whether c may use what belongs to a namespace.
func (c Caller) Sees(namespace string) bool {
	return c.Operator || c.Namespace != "" && c.Namespace == namespace
}

// Frontend returns the frontend of the runner's sandboxes that c has. ok is false for the zero Caller, which has none.
func (c Caller) Frontend() (f runner.Frontend, ok bool) {
	switch {
	case c.Operator:
		return runner.FrontendCLI, true
	case !runner.IsNamespace(c.Namespace):
		return "", false
	}
	return runner.FrontendOf(c.Namespace), true
}

type callerKey struct{}

// WithCaller returns a context of a request by c.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns the caller of a request. Without one the zero Caller, which sees nothing of a namespace.
func CallerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}
