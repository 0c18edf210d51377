// Package integration holds demesne's claims to account: it builds nothing of its
// own, imports nothing of ours, and drives the built programs from outside, on the
// real kernel, as whoever runs it (make test does so as root and as an ordinary user).
//
// One file a claim: run, streams, codes, signals, pty, files, input, limits, escape_*,
// leftovers, rungs, nested, parallel, receipt, docs, and image_*, which use a gallery: a
// box with an image store and a registry of its own (package fixture). Package rules holds the sources to
// the house rules, and needs no kernel at all.
//
// Programs come from $DEMESNE_BIN, or are built into a temporary directory. Every
// test gets a machine's corner of its own (a box: HOME, run directory, output root)
// and fails when it leaves a process, mount, network interface, control group or
// directory behind. The test process is a subreaper, so whatever demesne starts and
// forgets becomes its child: that is how leaks are told from other people's processes.
//
// What a test needs and the machine lacks is a skip, and under CI a failure.
package integration
