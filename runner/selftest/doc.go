// Package selftest tries attacks of docs/security/cases.md in a throw-away sandbox, and says which were contained.
//
// [Main] makes canaries on this machine: a secret file, a directory, sockets, a process, a key, shared memory. It then starts
// this program again in a sandbox, with the verb probe. That program tries each probe in a process of its own, and prints one
// line for each. Main also judges from outside: whether files were made there, and whether the canary changed.
//
// A probe never harms the machine: it touches canaries, opens files without writing, or makes calls with arguments that the
// kernel refuses behind its check of rights. So --control can run all probes without a sandbox.
//
// The package does not test what takes minutes or exhausts a machine, such as bombs. The tests of package integration do.
package selftest
