package api

import "demesne/runner/ipc"

// Protocol is the version of this package's messages. After an upgrade, callers of both versions use the sandboxes of both
// runners if it is the same; else each finds its own runner only. Raise it when a former program would misunderstand a
// message, or would ignore a field that restricts.
const Protocol = 1

// The operations of the caller socket. Package pid1api defines the operations of demesne-init's socket.
const (
	OpHello   ipc.Op = "hello"
	OpCreate  ipc.Op = "create"
	OpKey     ipc.Op = "key" // for a Spec with a Key: what a create call will find
	OpOpen    ipc.Op = "open"
	OpExec    ipc.Op = "exec"
	OpRun     ipc.Op = "run"   // create and exec at once
	OpEnded   ipc.Op = "ended" // an event sent by the runner
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
	OpReserve ipc.Op = "reserve" // a place for a persistent sandbox, before anything of it is made
	OpRelease ipc.Op = "release" // a place that no sandbox took
	OpInspect ipc.Op = "inspect"
	OpPause   ipc.Op = "pause"
	OpUsage   ipc.Op = "usage"
	OpCheck   ipc.Op = "check"
	OpEgress  ipc.Op = "egress"
	OpLimits  ipc.Op = "limits"
	OpAsk     ipc.Op = "ask" // an event sent by the runner
	OpAnswer  ipc.Op = "answer"
)
