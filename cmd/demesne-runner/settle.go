package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"demesne/runner/grants"
	"demesne/runner/userns"
)

// descriptor returns the number of a descriptor that the C half of package userns left in the environment, or -1.
func descriptor(name string) int {
	fd, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		return -1
	}
	return fd
}

// takeBack takes back the grants of the killed runner's sandboxes. Files of an ordinary user's sandboxes have ids
// that only the runner's user namespace maps, so a child process joins that namespace. If it cannot, takeBack
// settles the caller's own files, the only ones that other users could exploit.
func takeBack(run, key string) error {
	ns := descriptor(userns.EnvUserns)
	if os.Getenv(userns.EnvMode) != userns.ModeUser || ns < 0 {
		return settle(run, key)
	}
	err := settleInside(ns)
	if err != nil {
		err = fmt.Errorf("change owners in the runner's user namespace: %w", err)
		fmt.Fprintf(os.Stderr, "demesne-runner: reap: %v\n", err)
		return settle(run, key)
	}
	return nil
}

func settle(run, key string) error {
	return grants.TakeBack(run, key, grants.Inherited(descriptor(userns.EnvClock)).Set() > 0)
}

// settleInside runs settleChild in a user namespace.
func settleInside(ns int) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	cmd := exec.Command("/proc/self/exe", "settle")
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{null, os.NewFile(uintptr(ns), "userns")}
	cmd.Env = append(os.Environ(), userns.EnvControl+"=3", userns.EnvUserns+"=4")
	if clock := descriptor(userns.EnvClock); clock >= 0 {
		cmd.ExtraFiles = append(cmd.ExtraFiles, os.NewFile(uintptr(clock), "clock"))
		cmd.Env = append(cmd.Env, userns.EnvClock+"=5")
	}
	return cmd.Run()
}

// settleChild settles the directories, as the child of settleInside, and returns an exit code.
func settleChild() int { return report(settle(os.Getenv(userns.EnvRun), os.Getenv(userns.EnvKey))) }

// tidy removes the sockets of ended sandboxes that a live runner may not remove itself. It returns an exit code.
func tidy() int { return report(grants.Sockets(os.Getenv(userns.EnvRun), os.Getenv(userns.EnvKey))) }

func report(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "demesne-runner: reap: %v\n", err)
	return 1
}
