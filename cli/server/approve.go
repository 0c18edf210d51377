package server

import (
	"demesne/cli/app"
	"demesne/internal/cmdline"
	"demesne/runner/client"
	"demesne/server/servecmd"
)

// Approve returns demesne approve.
func Approve() app.Verb {
	flags := func() cmdline.Flags { return servecmd.ApproveFlags(&servecmd.ApproveOptions{}) }
	return app.External(*servecmd.ApproveCommand(&servecmd.ApproveOptions{}), flags, client.FrontendProgram, serveName, "approve")
}

// Deny returns demesne deny.
func Deny() app.Verb {
	flags := func() cmdline.Flags { return nil }
	return app.External(*servecmd.DenyCommand(), flags, client.FrontendProgram, serveName, "deny")
}
