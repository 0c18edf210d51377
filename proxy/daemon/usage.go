package daemon

import (
	"encoding/json"
	"os"

	"demesne/proxy"
	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/runner/network/proxyclient"
)

// recordTo makes routes write their usage records to the files of m, which it returns. Routes with the same Record
// share a file. asked are the same routes, as the caller gave them.
func recordTo(routes []proxy.Route, asked []runner.Route, m *ipc.Message) (files []*os.File) {
	byPath := map[string]*os.File{}
	for i, r := range asked {
		if f := m.File(proxyclient.FileRecord(i)); f != nil {
			byPath[r.Record], files = f, append(files, f)
		}
		if f := byPath[r.Record]; r.Record != "" && f != nil {
			routes[i].Record = func(u proxy.Usage) error { return writeUsage(f, u) }
		}
	}
	return files
}

// writeUsage appends a line to f by one write, so that lines of several routes do not mix.
func writeUsage(f *os.File, u proxy.Usage) error {
	line, err := json.Marshal(runner.UsageRecord{
		RequestID: u.RequestID, Time: u.Time, Status: u.Status, Model: u.Model,
		Input: u.Input, Output: u.Output, CacheCreation: u.CacheCreation, CacheRead: u.CacheRead, Reasoning: u.Reasoning,
		Number: u.Number, Asked: u.Asked, Sent: u.Sent, Got: u.Got, MaxOutput: u.MaxOutput, Searches: u.Searches,
		Cut: u.Cut, Missing: u.Missing, Malformed: u.Malformed, Fault: u.Fault, RetryAfter: runner.Duration(u.RetryAfter),
	})
	if err == nil {
		_, err = f.Write(append(line, '\n'))
	}
	return err
}
