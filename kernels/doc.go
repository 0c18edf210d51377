// Package kernels executes code in Jupyter kernels that run in sandboxes.
//
// A kernel is a process that keeps the state of a program between pieces of code: see "Messaging in Jupyter" in
// jupyter_client's documentation, version 5.4. Two kinds exist:
//
//   - A kernel of the root. [Look] finds its kernelspec in the sandbox, and [Start] starts it. It speaks the protocol over
//     ZeroMQ on the sandbox's loopback. ipykernel, IRkernel and tslab are tested.
//   - A kernel of demesne's, for roots that have an interpreter only: see package driver. [StartDriver] starts it. It
//     speaks the same messages on pipes of its own, and its stdout and stderr carry only what the code writes.
//
// Each gives a [Running], whose [Kernel] has the requests:
//
//	root, err := kernels.Look(ctx, sandbox)
//	spec, found := root.Spec("", "python")
//	k, err := kernels.Start(ctx, sandbox, spec, "/tmp", "/workspace", 1)
//	r, err := k.Execute(ctx, kernels.Execution{Code: "1 + 1", Timeout: time.Minute})
//	text, _ := r.Value.Text("text/plain")
//	k.Kill()
//
// Code that reaches its time limit is interrupted, once a second, and the kernel keeps its state. If the code still runs
// after 5 s, Execute returns [ErrStuck], and the caller should kill the kernel. A kernel that ends, or sends what is no
// message, gives [ErrDead]; [Running.Result] and [Running.Said] tell how it ended and what it said last.
//
// Everything that a kernel sends is untrusted: code in the sandbox may forge it. A [Channel] bounds each message, and a
// [Result] bounds what is kept of an execution. Messages that answer no request are dropped. The host opens no socket and
// no file of a sandbox: a process in the sandbox carries a socket's bytes (demesne-init's verb connect).
package kernels
