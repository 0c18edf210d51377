package api

import "demesne/runner/ipc"

// The caller socket's operations; see package guestapi for the guest's.
const (
	OpHello   ipc.Op = "hello"
	OpCreate  ipc.Op = "create"
	OpKey     ipc.Op = "key" // of a Spec with a Key: what a create call will find
	OpOpen    ipc.Op = "open"
	OpExec    ipc.Op = "exec"
	OpRun     ipc.Op = "run"   // create and exec at once
	OpEnded   ipc.Op = "ended" // an event of the runner's
	OpAttach  ipc.Op = "attach"
	OpWait    ipc.Op = "wait"
	OpSignal  ipc.Op = "signal"
	OpResize  ipc.Op = "resize"
	OpStop    ipc.Op = "stop"
	OpRestart ipc.Op = "restart"
	OpSweep   ipc.Op = "sweep"
	OpFork    ipc.Op = "fork"
	OpDiff    ipc.Op = "diff"
	OpLayer   ipc.Op = "layer"
	OpList    ipc.Op = "list"
	OpCount   ipc.Op = "count" // of those that stay
	OpInspect ipc.Op = "inspect"
	OpCheck   ipc.Op = "check"
	OpEgress  ipc.Op = "egress"
	OpAsk     ipc.Op = "ask" // an event of the runner's
	OpAnswer  ipc.Op = "answer"
)
