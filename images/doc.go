// Package images resolves an image name to an image on disk. The image is verified, pinned to a digest and kept in an
// OCI image layout. Any number of processes can use that layout at once.
//
// Package imageref defines the names: [imageref.Parse] is the only way to make one. A single word that is in neither
// the catalogue nor the store is an [UnknownError]. It never reaches a registry, where an attacker may have
// registered the misspelling. Package oci parses manifests and configurations.
//
// # Store
//
//	oci-layout index.json blobs/sha256/HEX  an OCI image layout; manifests are kept byte for byte
//	partial/HEX                             downloads in progress, or waiting to be resumed
//	locks/index                             held while changing index.json or removing blobs
//	used/HEX                                one per image: mtime is its last use, and a shared
//	                                        flock(2) marks it as in use
//	trees/KEY/HEX                           unpacked layers, made by package rootfs/layers
//	pushed/HEX                              where registries have a blob; see [Copies]
//	compress/HEX                            images whose layers are to be compressed; see package compression
//	steps/HEX                               results of the steps of builds, by their keys
//
// These invariants hold after any kill -9 and any interleaving of processes:
//
//   - index.json parses, and each image in it had all its blobs when it was added. It is replaced by rename(2), under
//     the lock.
//   - A file in blobs has the content that its name states. It is renamed into place after its size and digest were
//     compared and fsync(2) succeeded. Only a broken disk can undo that. [Store.Verify] finds such damage, and
//     [Store.Repair] removes the blob so that a pull fetches it again.
//   - A blob that a process found or made for an image it has not named yet is not removed. The process holds a
//     shared flock on it until [Store.Add] or [Store.Close].
//
// Locks are flock(2), which the kernel releases when the process ends. A process that waited for a lock checks that
// the path still leads to the locked file, so a lock file is never stale. On a network file system, the guarantees of
// flock depend on that file system.
//
// Everything read from a manifest or configuration came from a registry. It is bounded and parsed once, and only its
// hex digits become part of a path. Sizes and digests are compared while reading. Signatures and the media types of
// layers belong to images/pull, the contents of layers to rootfs/unpack.
//
// # Pulling and unpacking
//
// This package contacts no registry and unpacks nothing, so programs that only start images stay small. [Client]
// starts the helper program demesne-images twice. One run has the caller's rights and network, and pulls. The other
// run is inside the runner's user namespace, without a network, and unpacks. The two run at the same time. Package
// events defines the events that they report.
package images
