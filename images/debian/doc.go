// Package debian makes the root of a Debian system only from a package mirror. It needs no program of Debian and no
// root: it runs inside an empty sandbox, whose root becomes the system's.
//
//	release.go   a release: InRelease, by its signature, and the index of its packages, by its digest
//	packages.go  the packages that a minimal system needs
//	deb.go       .deb files: ar, tar
//	install.go   from the files of all packages to configured packages, by the system's own dpkg
//
// A mirror is untrusted: each of its files is bounded, and used only after its signature or its digest was checked.
// The keys are Debian's, in keys.asc.
package debian
