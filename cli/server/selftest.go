package server

import (
	"demesne/cli/app"
	"demesne/internal/cmdline"
	"demesne/runner/client"
	"demesne/runner/selftest"
)

// SelfTest returns demesne selftest, which the program of frontends runs.
func SelfTest() app.Verb {
	flags := func() cmdline.Flags { return selftest.Command(&selftest.Options{}).Flags }
	return app.External(*selftest.Command(&selftest.Options{}), flags, client.FrontendProgram, "selftest")
}
