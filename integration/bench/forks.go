package main

import (
	"bytes"
	"fmt"
	"regexp"
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
func forks(m *machine) error {
	other, err := m.output("demesne", "create") // keeps the runner alive
	if err != nil {
		return err
	}
	defer m.output("demesne", "rm", other)
	for _, tree := range []struct {
		name, script string
		busy         int // rounds
	}{{"8 files", fewFiles, max(m.rounds/8, 3)}, {"16384 files", manyFiles, 3}} {
		f := forker{m: m, note: "1 GiB in " + tree.name}
		if f.id, err = m.output("demesne", "create"); err != nil {
			return err
		}
		err = f.measure(tree.script, tree.busy)
		m.output("demesne", "rm", f.id)
		if err != nil {
			return err
		}
	}
	return nil
}

// forker forks one sandbox.
type forker struct {
	m        *machine
	id, note string
}

func (f forker) measure(script string, busy int) error {
	const sleeper = "sleep 1000 >/dev/null 2>&1 &"
	if _, err := f.m.output("demesne", "exec", f.id, "-c", script+"; "+sleeper); err != nil {
		return err
	}
	// Measure the busy sandbox first. The first fork of an idle sandbox turns its files into shared ones, which
	// later forks no longer copy.
	if err := f.busy(busy); err != nil {
		return err
	}
	for _, how := range []struct {
		name, verb string
		before     []string
	}{
		{"fork, stopped", "fork", []string{"demesne", "stop", f.id}},
		{"fork, nothing runs in it", "fork", []string{"demesne", "exec", f.id, "-c", "echo x >> /root/log"}},
		{"snapshot, nothing runs in it", "snapshot", []string{"demesne", "exec", f.id, "-c", "echo x >> /root/log"}},
	} {
		var times []time.Duration
		for range f.m.rounds {
			if how.name != "fork, stopped" || len(times) == 0 {
				if _, err := f.m.output(how.before...); err != nil {
					return err
				}
			}
			d, _, err := f.fork(how.verb)
			if err != nil {
				return err
			}
			times = append(times, d)
		}
		f.m.atMost(how.name+", "+f.note, f.m.add(how.name, f.note, times), forkBound)
	}
	return nil
}

// held matches the pause of the sandbox that fork reports.
var held = regexp.MustCompile(`held still for ([0-9.]+(?:ms|s))`)

func (f forker) busy(rounds int) error {
	var times, still []time.Duration
	for range rounds {
		d, says, err := f.fork("fork")
		if err != nil {
			return err
		}
		times = append(times, d)
		if word := held.FindSubmatch(says); word != nil {
			d, _ := time.ParseDuration(string(word[1]))
			still = append(still, d)
		}
	}
	f.m.atMost("fork, something runs in it, "+f.note, f.m.add("fork, something runs in it", f.note, times), forkBound)
	if len(still) > 0 {
		f.m.add("… for which it holds still", f.note, still)
	}
	return nil
}

// fork forks or snapshots once, removes the copy, and returns the time taken and the standard error.
func (f forker) fork(verb string) (time.Duration, []byte, error) {
	cmd := f.m.command("demesne", verb, f.id)
	var out, says bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &says
	start := time.Now()
	err := cmd.Run()
	d := time.Since(start)
	if err != nil {
		return 0, nil, fmt.Errorf("%s: %w: %s", verb, err, says.Bytes())
	}
	_, err = f.m.output("demesne", "rm", string(bytes.TrimSpace(out.Bytes())))
	return d, says.Bytes(), err
}
