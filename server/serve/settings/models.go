package settings

import (
	"cmp"
	"os"

	"demesne/server/servecmd"
	"demesne/session/operator"
)

// Getenv returns a function that returns a variable of the tools. A flag of the server precedes it.
func Getenv(o *servecmd.Options) func(name string) string {
	return func(name string) string {
		if name == "DEMESNE_TOOL_TEXTS" && o.ToolTexts != "" {
			return o.ToolTexts
		}
		return os.Getenv(name)
	}
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
