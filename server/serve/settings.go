package serve

import (
	"cmp"
	"context"
	"os"
	"strconv"

	"demesne/client"
	"demesne/server"
	"demesne/server/operate"
	"demesne/server/servecmd"
	"demesne/session/events"
	"demesne/session/operator"
)

// setting returns a variable of the tools. A flag of the server precedes it.
func (p *program) setting(name string) string {
	if name == "DEMESNE_TOOL_TEXTS" && p.options.ToolTexts != "" {
		return p.options.ToolTexts
	}
	return os.Getenv(name)
}

// forModels returns the policy of models over MCP. Where the bounds of their namespace say nothing, the variables of models
// and the machine do.
func (p *program) forModels(namespace string) (*operator.Policy, error) {
	others, err := operator.FromEnvironment(os.Getenv)
	if err != nil {
		return nil, err
	}
	return operator.New(boundsOf(p.options, namespace).Over(others), operator.Caller{
		Namespace: namespace, Model: true, Secrets: cmp.Or(namespace, os.Getenv(operator.VarSecrets)), VaultKey: os.Getenv("DEMESNE_VAULT_KEY"),
	})
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
