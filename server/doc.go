// Package server is the frame of demesne's HTTP API: the listener, the callers, and the checks of every request.
// APIs such as package e2b are handlers inside [Guard]. Package backend is their interface to what runs sandboxes.
//
//	guard.go    Host, Origin (CORS) and the size of bodies; the shape of an error before any API answers
//	access.go   from a request to its caller; caller.go
//	attempts.go how many wrong credentials a client may send, and how many requests a namespace
//	token.go    the operator's token, which is made at the first start; tokens.go: namespaces' tokens
//	jwt.go      tokens that another service signs
//	listen.go   loopback, or a socket that only its owner can reach; tls.go: certificates from files; acme.go: by ACME
//	queue.go    how many commands run at once
//	login.go    logins of browsers
//
// The package does not make sandboxes, and is independent of the APIs. Of the kernel's mechanisms it relies only on file modes:
// the token file and the socket have mode 0600.
package server
