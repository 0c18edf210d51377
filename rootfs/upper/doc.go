// Package upper reads back what a sandbox wrote: the upper of its overlay, or a directory of the host that was
// given to it.
//
//	Settle       makes it the caller's
//	Diff         compares it with the image below
//	WriteLayer   writes it as a layer of an image
//	LiveCopy     copies it, mostly while the sandbox runs
//	CopyLayer    merges it, or a layer, into a directory
//	ExecutedBy   names the host program that would execute one of its files
//	FindAutorun  finds such files in a directory of the host, to protect them or to see which are new
//
// A sandbox's files are as untrusted as an image. The package follows no link of them and enters no mount; depth,
// memory and descriptors are bounded. All work is done below descriptors: openat2 with RESOLVE_BENEATH or
// RESOLVE_NO_XDEV, and AT_SYMLINK_NOFOLLOW elsewhere.
//
// Whiteouts and opaque directories are read as overlayfs writes them with userxattr: character devices 0:0, and
// user.overlay.opaque. The package mounts nothing and does not stop the sandbox. Where a comment requires a stopped
// sandbox, the caller stops it.
package upper
