// Package oci parses an image's digests, manifests and configuration, as defined by the OCI image specification
// and by Docker's schema 2.
//
// The input is untrusted. It is bounded before parsing, parsed once and checked for its form. A [Digest] from
// JSON is safe as a file name, and the sizes and numbers of layers are within bounds. Comparing content with its
// digest is up to the caller; this package opens no file.
//
// It does not import go-digest and image-spec, which compile regular expressions before main. That would slow
// down each `demesne run`.
package oci
