package main

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Scripts that create trees of 1 GiB, of few files and of many.
const (
	fewFiles  = `mkdir /root/t; for i in 1 2 3 4 5 6 7 8; do head -c 134217728 /dev/urandom > /root/t/$i; done`
	manyFiles = `mkdir /root/t; cd /root/t; head -c 1073741824 /dev/urandom | split -b 65536 -a 4 -`
)

// forkBound is the bound on a fork or a snapshot of 1 GiB.
const forkBound = 20 * time.Millisecond

// forks times fork and snapshot of 1 GiB, for three kinds of sandbox: idle, stopped, and with a running command.
// The files of the last kind are copied where the file system cannot share them.
func forks(m *machine) {
	other := must(m.output("demesne", "create")) // keeps the runner alive
	defer m.output("demesne", "rm", other)
	for _, tree := range []struct {
		name, script string
		busy         int // rounds
	}{{"8 files", fewFiles, max(m.rounds/8, 3)}, {"16384 files", manyFiles, 3}} {
		f := forker{m: m, note: "1 GiB in " + tree.name, id: must(m.output("demesne", "create"))}
		f.measure(tree.script, tree.busy)
	}
}

// forker forks one sandbox.
type forker struct {
	m        *machine
	id, note string
}

func (f forker) measure(script string, busy int) {
	defer f.m.output("demesne", "rm", f.id)
	const sleeper = "sleep 1000 >/dev/null 2>&1 &"
	must(f.m.output("demesne", "exec", f.id, "-c", script+"; "+sleeper))
	// Measure the busy sandbox first. The first fork of an idle sandbox turns its files into shared ones, which
	// later forks no longer copy.
	f.busy(busy)
	must(f.m.output("demesne", "stop", f.id))
	write := func() { must(f.m.output("demesne", "exec", f.id, "-c", "echo x >> /root/log")) }
	for _, how := range []struct {
		name, verb string
		before     func()
	}{
		{"fork, stopped", "fork", func() {}},
		{"fork, nothing runs in it", "fork", write},
		{"snapshot, nothing runs in it", "snapshot", write},
	} {
		took := f.m.repeated(f.m.rounds, how.name, f.note, func() time.Duration {
			how.before()
			d, _ := f.fork(how.verb)
			return d
		})
		f.m.atMost(how.name+", "+f.note, took, forkBound)
	}
}

// held matches the pause of the sandbox that fork reports.
var held = regexp.MustCompile(`held still for ([0-9.]+(?:ms|s))`)

func (f forker) busy(rounds int) {
	var still []time.Duration
	const name = "fork, something runs in it"
	took := f.m.repeated(rounds, name, f.note, func() time.Duration {
		d, says := f.fork("fork")
		if word := held.FindStringSubmatch(says); word != nil {
			still = append(still, must(time.ParseDuration(word[1])))
		}
		return d
	})
	f.m.atMost(name+", "+f.note, took, forkBound)
	if len(still) > 0 {
		f.m.add("… for which it holds still", f.note, still)
	}
}

// fork forks or snapshots once, removes the copy, and returns the time taken and the standard error.
func (f forker) fork(verb string) (time.Duration, string) {
	cmd := f.m.command("demesne", verb, f.id)
	var out, says strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &says
	d := since(func() {
		if err := cmd.Run(); err != nil {
			check(fmt.Errorf("%s: %w: %s", verb, err, says.String()))
		}
	})
	must(f.m.output("demesne", "rm", strings.TrimSpace(out.String())))
	return d, says.String()
}
