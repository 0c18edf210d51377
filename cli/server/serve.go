package server

import (
	"demesne/cli/app"
	"demesne/internal/cmdline"
	"demesne/server/servecmd"
)

// serverProgram serves HTTP APIs. It is a separate program because an HTTP server would slow down every run.
const serverProgram = "demesne-server"

// Serve returns demesne serve.
func Serve() app.Verb {
	flags := func() cmdline.Flags { return servecmd.Flags(&servecmd.Options{}) }
	return app.External(*servecmd.Command(&servecmd.Options{}), flags, serverProgram)
}
