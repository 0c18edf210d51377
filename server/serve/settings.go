package serve

import (
	"cmp"
	"context"
	"os"
	"strconv"
	"strings"

	"demesne/client"
	"demesne/server"
	"demesne/server/operate"
	"demesne/server/servecmd"
	"demesne/session/events"
)

// setting returns the environment in which the tools of a namespace work: the bounds of its callers are in the variables
// that bound models.
func (p *program) setting(namespace string) func(name string) string {
	b := boundsOf(p.options, namespace)
	most := map[string]string{
		"DEMESNE_MAX_MEMORY": count(b.Max.Memory), "DEMESNE_MAX_DISK": count(b.Max.Disk),
		"DEMESNE_MAX_PIDS": count(b.Max.PIDs), "DEMESNE_MAX_EGRESS": b.Egress, "DEMESNE_TOOL_TEXTS": p.options.ToolTexts, "DEMESNE_DEFAULT_IMAGE": b.Image,
		"DEMESNE_ALLOWED_IMAGES": strings.Join(b.AllowedImages, ","), "DEMESNE_ALLOWED_DOMAINS": strings.Join(b.AllowedDomains, ","),
	}
	most["DEMESNE_NAMESPACE_AGENTS"] = strconv.FormatBool(b.Agents)
	if b.Max.CPUs > 0 {
		most["DEMESNE_MAX_CPUS"] = strconv.FormatFloat(b.Max.CPUs, 'f', -1, 64)
	}
	if b.MaxTimeout > 0 {
		most["DEMESNE_MAX_TIMEOUT"] = b.MaxTimeout.String()
	}
	return func(name string) string { return cmp.Or(most[name], os.Getenv(name)) }
}

// count formats a limit; empty: none.
func count(n int64) string {
	if n <= 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// defaultWaiting is how many commands of a namespace wait for others.
const defaultWaiting = 100

// newQueue returns the queue of commands, which also counts them if none has to wait.
func newQueue(o *servecmd.Options, op *operate.Operator) *server.Queue {
	own := map[string]int{}
	for name, b := range o.Namespaces {
		if b.MaxRunning > 0 && b.MaxRunning != o.MaxRunning {
			own[name] = b.MaxRunning
		}
	}
	return &server.Queue{
		Shut:    op.Unrecorded,
		Running: o.MaxRunning, Waiting: cmp.Or(o.MaxWaiting, defaultWaiting), Of: func(namespace string) int { return own[namespace] },
		Full: func(ctx context.Context, ahead int, refused bool) {
			op.Observe(ctx, events.Event{Type: events.QueueBackpressure, Detail: map[string]string{
				"ahead": strconv.Itoa(ahead), "refused": strconv.FormatBool(refused),
			}})
		},
	}
}

// queueState describes the queue to a request's caller.
func (p *program) queueState(ctx context.Context) client.Queue {
	return client.Queue(p.queue.State(server.CallerOf(ctx)))
}
