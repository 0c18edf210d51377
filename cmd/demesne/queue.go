package main

import (
	"os"
	"strconv"

	"demesne/cmd/internal/cli"
	"demesne/internal/ticketlock"
)

// queueFlag is a flag of exec and, with --key, of run.
func queueFlag(o *options) cli.Flags {
	return cli.Flags{{Group: groupCommand, Long: "queue", Set: cli.On(&o.queue),
		Help: "run after all earlier --queue commands for this sandbox, calls of agents included"}}
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
func joinLine(id string) (*ticketlock.Turn, error) {
	dir, err := ticketlock.DefaultDir()
	if err != nil {
		return nil, err
	}
	return ticketlock.Join(dir, id, strconv.Itoa(os.Getpid()))
}
