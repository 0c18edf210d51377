// Package imageref knows what a caller may say after --image: the catalogue (one table, catalogue.go), references to
// registries by Docker's rules (grammar.go), local layouts, archives and directories, and digests.
//
// [Parse] is the only way in. A single word that is not in the catalogue is never a registry's: somebody may have
// registered the misspelling there. It is pure, but for the working directory that a relative path is below;
// whether there is such an image it does not know.
package imageref
