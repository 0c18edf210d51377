// Package runs keeps runs: lists of commands in a sandbox that the caller names, with their events and artifacts, as
// mcp-sandboxd has them. Clients of that system find
//
//	GET /mcp/runs/ID                      the run
//	GET /mcp/events?run_id=ID             its events (SSE), the last 200 again
//	GET /artifacts/NAME/ID/PATH           a file that was in /artifacts after the run; ID may be "latest"
//
// A run is a job of package jobs, in a store of its own. A process of its own executes it, and writes each event as a line
// of the job's output. So a run goes on if the server is killed, and the next server finds it:
//
//	DIR/job-UUID/            see package jobs; stdout.log has the events
//	DIR/job-UUID/artifacts/  copies of the files
//	DIR/latest/HASH          the newest run with artifacts of a namespace and name
//
//	run.go      a request and a run; parse.go: from the arguments of a tool to a request
//	store.go    the runs; evict.go: how many are kept, and how long
//	record.go   the events of a run, as its process writes them; artifacts.go: its files
//	follow.go   the events, as clients read them; http.go: the routes
//
// The package executes nothing: the caller passes that function to [Store.Attend]. Output, file names and files come from
// sandboxes. They are bounded when they are written, and passed on as data.
package runs
