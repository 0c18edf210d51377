package settings

import (
	"cmp"
	"context"
	"os"

	"demesne/server"
	"demesne/server/servecmd"
	"demesne/session"
	"demesne/session/operator"
)

// Tools returns a variable of the tools. A flag of the server precedes it.
func Tools(o *servecmd.Options, name string) string {
	if name == "DEMESNE_TOOL_TEXTS" && o.ToolTexts != "" {
		return o.ToolTexts
	}
	return os.Getenv(name)
}

// Models returns the policy of models over MCP. Where the bounds of their namespace say nothing, the variables of models
// and the machine do.
func Models(o *servecmd.Options, namespace string) (*operator.Policy, error) {
	others, err := operator.FromEnvironment(os.Getenv)
	if err != nil {
		return nil, err
	}
	return operator.New(Bounds(o, namespace).Over(others), operator.Caller{
		Namespace: namespace, Model: true, Secrets: cmp.Or(namespace, os.Getenv(operator.VarSecrets)), VaultKey: os.Getenv("DEMESNE_VAULT_KEY"),
	})
}

// defaultWaiting is how many commands of a namespace wait for others.
const defaultWaiting = 100

// Queue returns the queue of commands, which also counts them if none has to wait. shut and full are those of [server.Queue].
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

// API returns the bounds of the callers of the HTTP API, by their namespace. Agents have those of models.
func API(o *servecmd.Options) (func(namespace string) session.Bounds, error) {
	models, err := operator.FromEnvironment(os.Getenv)
	return func(namespace string) session.Bounds {
		b := Bounds(o, namespace)
		b.MaxCost, b.MaxTokens = models.MaxCost, models.MaxTokens
		return b
	}, err
}
