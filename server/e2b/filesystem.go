package e2b

import (
	"context"
	"path"
	"sync"
	"syscall"

	"google.golang.org/protobuf/types/known/timestamppb"

	"demesne/runner/fileops"
	"demesne/server"
	"demesne/server/e2b/envd"
)

// filesystem implements envd's filesystem.Filesystem.
type filesystem struct {
	s *Server

	mu       sync.Mutex
	watchers map[string]*watcher // of CreateWatcher
}

// operate performs an operation for the user that the call names.
func operate(ctx context.Context, t fileops.Request) ([]fileops.Info, error) {
	e := entryOf(ctx)
	a, err := e.account(ctx, userOf(headers(ctx)))
	if err != nil {
		return nil, rpcError(err)
	}
	user, t := a.files(t)
	var infos []fileops.Info
	err = e.with(ctx, func(sb server.Sandbox) error {
		got, err := sb.Tree(ctx, user, a.home, t, nil, nil)
		if err == nil {
			infos = got.Infos
		}
		return err
	})
	return infos, rpcError(err)
}

// one performs an operation whose answer is one file.
func one(ctx context.Context, t fileops.Request) (*envd.EntryInfo, error) {
	infos, err := operate(ctx, t)
	if err == nil && len(infos) != 1 {
		err = rpcError(&fileops.Error{Errno: syscall.EIO, Text: "the sandbox described no file"})
	}
	if err != nil {
		return nil, err
	}
	return entryInfo(infos[0]), nil
}

// entryInfo translates the description of a file, which comes from the sandbox. As with E2B, a link has the type of the file
// that it leads to, and that file's path: earlier SDKs have no type for links.
func entryInfo(i fileops.Info) *envd.EntryInfo {
	e := &envd.EntryInfo{
		Name: path.Base(i.Path), Path: i.Path, Size: i.Size, Mode: i.Mode, Permissions: i.Text, Owner: i.Owner, Group: i.Group,
		ModifiedTime: timestamppb.New(i.Modified), Metadata: i.Meta,
	}
	kind := i.Type
	if kind == "link" {
		e.SymlinkTarget = &i.Path
		if i.Real != nil {
			kind, e.Mode, e.SymlinkTarget = i.Real.Type, i.Real.Mode, &i.Real.Path
		}
	}
	switch kind {
	case "file":
		e.Type = envd.FileType_FILE_TYPE_FILE
	case "directory":
		e.Type = envd.FileType_FILE_TYPE_DIRECTORY
	}
	if !e.ModifiedTime.IsValid() {
		e.ModifiedTime = nil
	}
	return e
}

// Stat describes a file.
func (*filesystem) Stat(ctx context.Context, q *envd.StatRequest) (*envd.StatResponse, error) {
	e, err := one(ctx, fileops.Request{Op: fileops.OpStat, Path: q.GetPath()})
	return &envd.StatResponse{Entry: e}, err
}

// MakeDir makes a directory with its parents.
func (*filesystem) MakeDir(ctx context.Context, q *envd.MakeDirRequest) (*envd.MakeDirResponse, error) {
	e, err := one(ctx, fileops.Request{Op: fileops.OpMkdir, Path: q.GetPath()})
	return &envd.MakeDirResponse{Entry: e}, err
}

// Move renames a file or directory.
func (*filesystem) Move(ctx context.Context, q *envd.MoveRequest) (*envd.MoveResponse, error) {
	e, err := one(ctx, fileops.Request{Op: fileops.OpMove, Path: q.GetSource(), To: q.GetDestination()})
	return &envd.MoveResponse{Entry: e}, err
}

// deepest bounds the depth of a list.
const deepest = 64

// ListDir lists what is below a directory.
func (*filesystem) ListDir(ctx context.Context, q *envd.ListDirRequest) (*envd.ListDirResponse, error) {
	infos, err := operate(ctx, fileops.Request{Op: fileops.OpList, Path: q.GetPath(), Depth: int(min(max(q.GetDepth(), 1), deepest))})
	if err != nil {
		return nil, err
	}
	a := &envd.ListDirResponse{}
	for _, i := range infos {
		a.Entries = append(a.Entries, entryInfo(i))
	}
	return a, nil
}

// Remove removes a file or a directory with what is in it.
func (*filesystem) Remove(ctx context.Context, q *envd.RemoveRequest) (*envd.RemoveResponse, error) {
	_, err := operate(ctx, fileops.Request{Op: fileops.OpRemove, Path: q.GetPath()})
	return &envd.RemoveResponse{}, err
}
