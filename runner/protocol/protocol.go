package protocol

import "demesne/runner/wire"

// The caller socket's operations; see package guestapi for the guest's.
const (
	OpHello   wire.Op = "hello"
	OpCreate  wire.Op = "create"
	OpKey     wire.Op = "key" // of a Spec with a Key: what a create call will find
	OpOpen    wire.Op = "open"
	OpExec    wire.Op = "exec"
	OpRun     wire.Op = "run"   // create and exec at once
	OpEnded   wire.Op = "ended" // an event of the runner's
	OpAttach  wire.Op = "attach"
	OpWait    wire.Op = "wait"
	OpSignal  wire.Op = "signal"
	OpResize  wire.Op = "resize"
	OpStop    wire.Op = "stop"
	OpRestart wire.Op = "restart"
	OpSweep   wire.Op = "sweep"
	OpFork    wire.Op = "fork"
	OpDiff    wire.Op = "diff"
	OpLayer   wire.Op = "layer"
	OpList    wire.Op = "list"
	OpCount   wire.Op = "count" // of those that stay
	OpInspect wire.Op = "inspect"
	OpCheck   wire.Op = "check"
	OpEgress  wire.Op = "egress"
	OpAsk     wire.Op = "ask" // an event of the runner's
	OpAnswer  wire.Op = "answer"
)
