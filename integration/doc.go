// Package integration tests demesne's claims. It imports nothing of demesne, and drives the
// built programs from outside, on the real kernel, as the current user. make test runs it as
// root and as an ordinary user.
//
// Each file tests one claim: run, streams, codes, signals, pty, files, input, limits, escape_*,
// leftovers, rungs, nested, receipt, docs, and image_*. The image tests use a gallery: a
// box with an image store and a registry of its own (package fixture). Package rules checks
// the sources against the house rules, and needs no kernel feature.
//
// The programs come from $DEMESNE_BIN, or are built into a temporary directory. Each test
// gets a box: its own HOME, run directory and output root. It fails when it leaves a process,
// mount, network interface, control group or directory behind. The test process is a subreaper,
// so a process that demesne abandons becomes its child. That separates leaked processes from other users'.
//
// A test skips when the machine lacks something it needs, and fails instead under CI.
package integration
