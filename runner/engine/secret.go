package engine

import (
	"slices"
	"strings"

	"demesne/runner"
	"demesne/runner/ipc"
)

func secretsOf(e *runner.Egress) []runner.Secret {
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

// secretsUnlike describes each secret in asked that s lacks or has with another value, host or header. The texts
// contain no values.
func (s *sandbox) secretsUnlike(asked []runner.Secret) (diffs []string) {
	has := secretsOf(s.egress)
	for _, k := range asked {
		switch i := slices.IndexFunc(has, func(h runner.Secret) bool { return h.Name == k.Name }); {
		case i < 0:
			diffs = append(diffs, "secret "+k.Name+": the sandbox was started without it")
		case has[i] != k:
			diffs = append(diffs, "secret "+k.Name+": the sandbox was started with another value, host or header")
		}
	}
	return diffs
}

// hasSecrets rejects a command that requests secrets which s lacks. A sandbox gets its secrets when it starts,
// because only then can its programs be made to trust the proxy.
func (s *sandbox) hasSecrets(asked []runner.Secret) error {
	diffs := s.secretsUnlike(asked)
	if len(diffs) == 0 {
		return nil
	}
	err := ipc.Errorf(ipc.CodeInvalid, "execute command: sandbox %q has other secrets: %s", s.id, strings.Join(diffs, "; "))
	err.Hint = "demesne stop " + s.id + " ends its processes; the next command starts it again with its own secrets"
	if s.egress == nil {
		err.Hint = "it has no network: create a sandbox with --egress or --allow-domain to use a secret"
	}
	return err
}
