// Package oci reads what an image says about itself: digests, manifests and configurations, as the OCI image
// specification and Docker's schema 2 have them.
//
// All of it came from somebody else. It is bounded before it is parsed, parsed once, and checked for its
// form: a [Digest] out of JSON is safe as a file name, the sizes and numbers of layers are possible ones. Whether
// content is what a digest says is for whoever reads the content; nothing here opens a file.
//
// It is spelled out instead of imported: go-digest and image-spec compile regular expressions before main, which
// each `demesne run` would pay for.
package oci
