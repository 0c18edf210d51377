// Package settings reads the settings of demesne serve, and derives the callers and the bounds of each namespace.
//
//	config.go  the command line, the environment and the configuration file; models over MCP
//	bounds.go  the bounds of namespaces, and the queue; access.go: callers, certificate and state
package settings

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/BurntSushi/toml"

	"demesne/internal/cmdline"
	"demesne/internal/fsutil"
	"demesne/server"
	"demesne/server/servecmd"
	"demesne/session"
	"demesne/session/operator"
)

// maxConfig bounds a configuration file, in bytes.
const maxConfig = 1 << 20

// Read reads the command line, the environment, and the configuration file.
func Read(line *cmdline.Command, o *servecmd.Options, args []string) (rest []string, err error) {
	var namespaces map[string]any
	rest, err = line.ParseWith(args, os.Getenv, func() (map[string]any, error) {
		values, err := configuration(o.Config)
		if err == nil {
			namespaces, err = table(values, "namespaces")
		}
		return values, err
	})
	if err == nil {
		err = namespaceBounds(o, namespaces)
	}
	return rest, err
}

// configuration reads a file; empty: the user's own, which may be missing.
func configuration(path string) (map[string]any, error) {
	named := path != ""
	if !named {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, nil
		}
		path = filepath.Join(home, ".config/demesne/serve.toml")
	}
	text, err := fsutil.ReadTrusted(path, maxConfig) // who writes it decides about sandboxes
	if errors.Is(err, fs.ErrNotExist) && !named {
		return nil, nil
	}
	values := map[string]any{}
	if err == nil {
		err = toml.Unmarshal(text, &values)
	}
	if err != nil {
		return nil, fmt.Errorf("read configuration %q: %w", path, err)
	}
	for _, key := range []string{"config", "env", "page", "name", "expires"} {
		if values[key] != nil {
			return nil, fmt.Errorf("read configuration %q: key %q: only for the command line", path, key)
		}
	}
	return values, nil
}

// table removes a table from the values, and returns it.
func table(values map[string]any, name string) (map[string]any, error) {
	v, there := values[name]
	delete(values, name)
	t, ok := v.(map[string]any)
	if there && !ok {
		return nil, fmt.Errorf("key %q: not a table", name)
	}
	return t, nil
}

// namespaceBounds reads the bounds of single namespaces.
func namespaceBounds(o *servecmd.Options, all map[string]any) error {
	o.Namespaces = map[string]session.Bounds{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		values, ok := all[name].(map[string]any)
		if err := server.CheckNamespace(name); err != nil {
			return fmt.Errorf("table [namespaces]: %w", err)
		}
		if !ok {
			return fmt.Errorf("key %q: not a table", "namespaces."+name)
		}
		b := o.Bounds
		for key, list := range map[string]*[]string{"allowed-images": &b.AllowedImages, "allowed-domains": &b.AllowedDomains, "allowed-mounts": &b.AllowedMounts} {
			if values[key] != nil { // it replaces the list of all
				*list = nil
			}
		}
		if err := servecmd.BoundFlags(&b).Apply(values); err != nil {
			return fmt.Errorf("namespace %q: %w", name, err)
		}
		o.Namespaces[name] = b
	}
	return nil
}

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
