// Package push copies images of the store to registries, and keeps the credentials for that. Like images/pull it uses
// go.podman.io/image/v5 for registries.conf, certs.d, auth.json and credential helpers, so that what works for podman and
// skopeo works here.
//
//	layers     several at once. A layer that the registry has is not sent again. If only another repository of the
//	           registry has it, the registry mounts it from there
//	           [Copies] of the store records which blobs were sent where
//	manifest   last, so that a push that fails changes no tag
//	signature  if asked for, next to the image (sign.go)
//
// Layers that an image has in compressed form are sent unchanged, as is the manifest: the image keeps its digest. A
// layer that is not compressed, as builds make them, is compressed while it is sent, unless [Compress] did it after the
// build. The same layer, format and level give
// the same bytes on any machine, so the digest of a pushed image is stable. Every byte read from the store is hashed, so
// that a damaged layer is never pushed under a digest of its own.
//
// A transient failure is retried after a growing pause. An upload that was cut continues where the registry says that it
// stopped, in chunks with a Content-Range. A registry that forgot the upload gets the blob from the start; the reference
// implementation forgets uploads that were cut within a request. The library's own uploads cannot continue, which is why
// this package has a small client of the distribution protocol (registry.go, auth.go).
//
// The package pushes the one image that the store has of a name, not an index for several platforms. OpenPGP signatures
// need GnuPG, and are not supported.
package push
