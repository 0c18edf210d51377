package main

import (
	"os"
	"strconv"

	"demesne/internal/flock"
)

// queueFlag is a flag of exec and, with --key, of run.
func queueFlag(o *options) flagSet {
	return flagSet{{group: groupCommand, long: "queue", set: on(&o.queue),
		help: "wait for the commands with --queue that came earlier for this sandbox, calls of agents included, and go on one at a time, in order"}}
}

// within runs the command in a persistent sandbox. With --queue it first waits for its turn.
func (j *execution) within(b *box) error {
	if j.o.queue {
		turn, err := joinLine(b.ID)
		if err != nil {
			return err
		}
		defer turn.Leave()
		if err := turn.Wait(j.sig.ctx); err != nil {
			return err
		}
	}
	return j.execute(b.exec, func() {})
}

// joinLine joins the end of a sandbox's queue.
func joinLine(id string) (*flock.Turn, error) {
	dir, err := flock.QueueDir()
	if err != nil {
		return nil, err
	}
	return flock.JoinQueue(dir, id, strconv.Itoa(os.Getpid()))
}
