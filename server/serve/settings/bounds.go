package settings

import (
	"cmp"
	"context"
	"os"

	"demesne/runner"
	"demesne/runner/limits"
	"demesne/server"
	"demesne/server/e2b"
	"demesne/server/servecmd"
	"demesne/session"
	"demesne/session/operator"
)

// Bounds returns the bounds of a namespace; empty: the operator's.
func Bounds(o *servecmd.Options, namespace string) session.Bounds {
	b, ok := o.Namespaces[namespace]
	if !ok {
		b = o.Bounds
	}
	b.Egress = cmp.Or(b.Egress, servecmd.DefaultEgress)
	usual := limits.Resolve(b.Limits)
	b.Max.Memory, b.Max.Disk = cmp.Or(b.Max.Memory, max(usual.Memory, 0)), cmp.Or(b.Max.Disk, max(usual.Disk, 0)) // none: no bound
	b.Max.PIDs = cmp.Or(b.Max.PIDs, runner.DefaultPIDs)
	return b
}

// The ceilings of what a namespace stores that the operator did not set. Its bytes are so many disk limits of a sandbox.
const (
	storedDisks = 10
	maxStored   = 20 << 30 // without a disk limit
	storedFiles = 100_000
	storedItems = 100 // volumes, snapshots, templates
)

// Quota returns the ceilings of what a namespace stores. The operator has none.
func Quota(o *servecmd.Options, namespace string) e2b.Quota {
	if namespace == "" {
		return e2b.Quota{}
	}
	b := Bounds(o, namespace)
	disk := max(limits.Resolve(b.Limits).Disk, 0) // of a sandbox whose caller asks for none, as E2B's do
	if b.Max.Disk > 0 && (disk == 0 || disk > b.Max.Disk) {
		disk = b.Max.Disk
	}
	bytes := int64(maxStored)
	if disk > 0 {
		bytes = storedDisks * disk
	}
	return e2b.Quota{
		Bytes: cmp.Or(b.MaxStored, bytes), Files: cmp.Or(b.MaxFiles, storedFiles), Volume: disk,
		Volumes: cmp.Or(b.MaxVolumes, storedItems), Snapshots: cmp.Or(b.MaxSnapshots, storedItems), Templates: cmp.Or(b.MaxTemplates, storedItems),
	}
}

// defaultWaiting is how many commands of a namespace wait for others.
const defaultWaiting = 100

// Queue returns the queue of commands, which also counts them if none has to wait. shut and full are its Shut and Full.
func Queue(o *servecmd.Options, shut func() error, full func(ctx context.Context, ahead int, refused bool)) *server.Queue {
	own := map[string]int{}
	for name, b := range o.Namespaces {
		if b.MaxRunning > 0 && b.MaxRunning != o.MaxRunning {
			own[name] = b.MaxRunning
		}
	}
	return &server.Queue{
		Shut: shut, Full: full, Running: o.MaxRunning, Waiting: cmp.Or(o.MaxWaiting, defaultWaiting), Of: func(namespace string) int { return own[namespace] },
	}
}

// API returns the bounds of the callers of the HTTP API, by their namespace. The ceilings on the cost of agents are the same as
// for models.
func API(o *servecmd.Options) (func(namespace string) session.Bounds, error) {
	models, err := operator.FromEnvironment(os.Getenv)
	return func(namespace string) session.Bounds {
		b := Bounds(o, namespace)
		b.MaxCost, b.MaxTokens = models.MaxCost, models.MaxTokens
		return b
	}, err
}
