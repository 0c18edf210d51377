package cli

import (
	"demesne/internal/cmdline"
	"demesne/server/servecmd"
)

func approveCommand() command {
	flags := func() cmdline.Flags { return servecmd.ApproveFlags(&servecmd.ApproveOptions{}) }
	return external(*servecmd.ApproveCommand(&servecmd.ApproveOptions{}), flags, serverProgram, "approve")
}
