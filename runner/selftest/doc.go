// Package selftest tries attacks of docs/security/cases.md in a throw-away sandbox, and says which were contained.
//
// [Main] makes canaries on this machine: a secret file, a directory, sockets, a process, a key, shared memory. It then starts
// this program again in a sandbox, with the verb probe. That program tries each probe in a process of its own, and prints one
// line for each. Main also judges from outside: whether files were made there, and whether the canary changed.
//
// A probe never harms the machine: it touches canaries, opens files without writing, or makes calls with arguments that the
// kernel refuses behind its check of rights. So --control can run all probes without a sandbox.
//
// Bombs of processes and memory have a sandbox each, stop by themselves, and are left out where memory is short. The package does
// not test what takes minutes or fills disks. The tests of package integration do.
package selftest
