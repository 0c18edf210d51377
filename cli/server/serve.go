package server

import (
	"demesne/cli/app"
	"demesne/internal/cmdline"
	"demesne/runner/client"
	"demesne/server/servecmd"
)

// serveName is the frontend that serves HTTP APIs, and decides about requests for the host.
const serveName = "serve"

// Serve returns demesne serve.
func Serve() app.Verb {
	flags := func() cmdline.Flags { return servecmd.Flags(&servecmd.Options{}) }
	return app.External(*servecmd.Command(&servecmd.Options{}), flags, client.FrontendProgram, serveName)
}
