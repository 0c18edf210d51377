// Package wrote reads back what a sandbox wrote: the upper of its overlay, or a directory of the host that was its own.
//
//	Settle       makes it the caller's
//	Diff         compares it with what was below
//	WriteLayer   makes a layer of an image of it
//	LiveCopy         copies it, most of it while the sandbox goes on
//	CopyLayer    merges it, or a layer, into a directory
//
// What a sandbox left is as hostile as an image. No link of it is followed, and no mount entered; depth, memory and
// descriptors are bounded. Everything is done below descriptors: openat2 with RESOLVE_BENEATH or RESOLVE_NO_XDEV, and
// AT_SYMLINK_NOFOLLOW elsewhere.
//
// Whiteouts and opaque directories are read as overlayfs writes them with userxattr: character devices 0:0, and user.overlay.opaque.
// The package mounts nothing and does not stop the sandbox: its caller does, where a comment asks for it.
package upper
