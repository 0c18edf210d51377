package sandbox

import (
	"slices"
	"strings"

	"demesne/runner"
	"demesne/runner/ipc"
)

// SecretsOf returns the secrets of e, which may be nil.
func SecretsOf(e *runner.Egress) []runner.Secret {
	if e == nil {
		return nil
	}
	return e.Secrets
}

// namesOf returns the names of secrets, the only part that may be written to a file.
func namesOf(secrets []runner.Secret) (names []string) {
	for _, k := range secrets {
		names = append(names, k.Name)
	}
	return names
}

// missing returns the names without a secret. It is pure.
func missing(names []string, secrets []runner.Secret) (left []string) {
	for _, name := range names {
		if !slices.ContainsFunc(secrets, func(k runner.Secret) bool { return k.Name == name }) {
			left = append(left, name)
		}
	}
	return left
}

// SecretsUnlike describes each secret in asked that the sandbox lacks or has with another value, host or header. The texts
// contain no values.
func (i *identity) SecretsUnlike(asked []runner.Secret) (diffs []string) {
	has := SecretsOf(i.egress)
	for _, k := range asked {
		switch at := slices.IndexFunc(has, func(h runner.Secret) bool { return h.Name == k.Name }); {
		case at < 0:
			diffs = append(diffs, "secret "+k.Name+": started without it")
		case has[at] != k:
			diffs = append(diffs, "secret "+k.Name+": started with another value, host or header")
		}
	}
	return diffs
}

// hasSecrets rejects a command that requests secrets which the sandbox lacks. A sandbox gets its secrets when it starts,
// because only then can its programs be made to trust the proxy.
func (i *identity) hasSecrets(asked []runner.Secret) error {
	diffs := i.SecretsUnlike(asked)
	if len(diffs) == 0 {
		return nil
	}
	err := ipc.Errorf(ipc.CodeInvalid, "execute command: sandbox %q has other secrets: %s", i.id, strings.Join(diffs, "; "))
	err.Hint = "demesne stop " + i.id + " ends its processes; the next command starts it with the secrets that come with that"
	if i.egress == nil {
		err.Hint = "it was made without a network: create --egress or --allow-domain makes one that can use a secret"
	}
	return err
}
