// Package imageref parses image references, as given to --image. They are catalogue names (one table, in
// catalogue.go), registry references by Docker's rules (grammar.go), local layouts, archives and directories, and
// digests.
//
// [Parse] is the only way to make a reference. A single word outside the catalogue never names an image in a
// registry, where an attacker may have registered the misspelling. Parsing depends on nothing but the working
// directory, for relative paths. It does not check whether the image exists.
package imageref
