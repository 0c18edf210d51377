// Package images turns a name that a caller may use into an image on disk: verified, pinned to a
// digest, in an OCI image layout that any number of processes use at once.
//
// Names are package imageref's: [imageref.Parse] is the only way in. A single word that is in neither the catalogue
// nor the store is an [UnknownError]; it never reaches a registry, where somebody may have registered the misspelling.
// What an image says of itself is package oci's.
//
// # Store
//
//	oci-layout index.json blobs/sha256/HEX  an OCI image layout; manifests stay byte for byte
//	partial/HEX                             downloads under way, or to be resumed
//	locks/index                             held by whoever changes index.json or removes blobs
//	used/HEX                                one per image: mtime is its last use, and a shared
//	                                        flock(2) says that it is in use now
//	trees/KEY/HEX                           unpacked layers; package rootfs/layers makes them
//
// What must hold after any kill -9, in any order of processes:
//
//   - index.json parses, and each image it names had all its blobs when it was named. It is
//     replaced by rename(2), under the lock.
//   - A file in blobs has the content its name says. It gets there by rename, after its size and
//     digest were compared and fsync(2) succeeded; only a broken disk undoes that, which
//     [Store.Verify] finds and [Store.Repair] makes a pull mend.
//   - A blob that a process found or made, for an image it has not named yet, is not removed: the
//     process holds a shared flock on it until [Store.Add] or [Store.Close].
//
// Locks are flock(2), which the kernel lets go of when their process ends. A file that is locked
// and then removed is looked at again by whoever waited for it, so no lock file is ever stale.
// flock on a network file system is that file system's promise, not ours.
//
// Everything read from a manifest or configuration came from a registry: it is bounded, parsed
// once, and only hex digits of it become part of a path. Sizes and digests are compared while
// reading. Signatures, media types of layers and the contents of layers are other packages'
// concern (images/pull, rootfs/unpack).
//
// # Bringing images here
//
// This package speaks to no registry and unpacks nothing, so that a program which only starts
// images stays small. [Client] starts the program that does, demesne-images, once with the
// caller's rights and network to pull, and once inside the runner's user namespace, without a
// network, to unpack. The two run at the same time; package events draws what they say.
package images
