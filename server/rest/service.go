package rest

import (
	"context"
	"io"
	"os"

	"demesne/client"
	"demesne/runner"
	"demesne/runner/files"
	"demesne/server"
	"demesne/session"
)

// Service has the API's operations in addition to [server.Sandboxes]. A sandbox is named by its id or name; the context has the
// caller, and other callers' sandboxes do not exist for it.
type Service interface {
	server.Sandboxes
	// RemoveGroup removes the sandboxes of a group of the caller's namespace, and returns their ids.
	RemoveGroup(ctx context.Context, group string) ([]string, error)
	Inspect(ctx context.Context, name string) (*runner.Info, error)
	// Run makes a sandbox, runs a command in it, and removes it. Exec runs a command in a persistent sandbox. The end of ctx
	// kills the command. The result comes with the end of each stream.
	Run(context.Context, session.Request, session.Callbacks) (*session.RunResult, error)
	Exec(ctx context.Context, name string, r session.RunOptions, cb session.Callbacks) (*session.RunResult, error)
	// Limit changes limits of a live sandbox, within the operator's. A zero leaves a limit as it is.
	Limit(ctx context.Context, name string, l runner.Limits) error
	// Files performs an operation whose answer is small. Its error may be the sandbox's text.
	Files(ctx context.Context, name string, r files.Request) (*files.Answer, error)
	// Copy copies a file or directory inside a sandbox.
	Copy(ctx context.Context, name, from, to string) error
	// Archive writes a file or directory as a tar, without links.
	Archive(ctx context.Context, name, from string, w io.Writer) error
	Diff(ctx context.Context, name string) (*runner.Diff, error)
	// Rules adds rules to a sandbox's rules.
	Rules(ctx context.Context, name string, allow, deny []string) error
	// MayDecide checks that the caller may allow a name that a sandbox asks for.
	MayDecide(context.Context) error
	Images
}

// Images are the images in the store.
type Images interface {
	ListImages(context.Context) ([]client.Image, error)
	// Pull fetches an image, and tells its progress.
	Pull(ctx context.Context, name string, progress func(string)) (*client.Image, error)
	// BuildImage builds an image, from uploaded or from the directory that q names, and writes its progress to log. It removes
	// nothing of an earlier image of the tag.
	BuildImage(ctx context.Context, q client.BuildRequest, uploaded *os.File, log io.Writer) (*client.Built, error)
	// RemoveImage removes a name, unless a sandbox uses its image.
	RemoveImage(ctx context.Context, name string) error
}
