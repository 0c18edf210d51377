// Package selftest tries attacks of docs/security/cases.md in a throw-away sandbox, and says which were contained.
//
// [Run] makes canaries on this machine: a secret file, a directory, sockets, a process, a key, shared memory. It then starts this
// program again inside of a sandbox, as the verb probe. That program tries each probe in a process of its own, and prints one
// line for each. Run also judges from outside: what arrived at a socket, and whether the canaries changed.
//
// A probe never harms the machine: it touches canaries, opens files without writing, or makes calls with arguments that the
// kernel refuses behind its check of rights. So --control can run all probes without a sandbox.
//
// The package does not test what takes minutes or exhausts a machine, such as bombs. The tests of package integration do.
package selftest
