package sandbox

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"demesne/rootfs/layers"
	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/runner/limits"
	"demesne/runner/network"
)

// Admit rejects an invalid Spec and fills in defaults.
func Admit(spec *runner.Spec) error {
	if err := ValidName(spec.Name); err != nil {
		return err
	}
	if err := admitGroup(spec); err != nil {
		return err
	}
	if spec.Image == "" {
		spec.Image = "host"
	}
	if err := admitRootfs(spec); err != nil {
		return err
	}
	if spec.Hostname == "" {
		spec.Hostname = "demesne"
	}
	if err := AdmitKey(*spec); err != nil {
		return err
	}
	if spec.Share != "" && (spec.Share != runner.FrontendMCP || spec.Frontend != runner.FrontendCLI || spec.Lifetime != runner.Persistent) {
		return ipc.Errorf(ipc.CodeInvalid, "create sandbox: share %.64q: only persistent sandboxes of the command line can be shared, and only with mcp", string(spec.Share))
	}
	if !filepath.IsAbs(spec.Out) {
		return ipc.Errorf(ipc.CodeInvalid, "create sandbox: output directory %q: not absolute", spec.Out)
	}
	if err := admitMounts(spec); err != nil {
		return err
	}
	if err := admitInterior(spec); err != nil {
		return err
	}
	if err := admitDefaults(spec.Defaults); err != nil {
		return err
	}
	switch spec.Require {
	case "", runner.LevelFull, runner.LevelDegraded, runner.LevelMinimal:
	default:
		return ipc.Errorf(ipc.CodeInvalid, "create sandbox: require %q: not a level (full, degraded, minimal)", spec.Require)
	}
	spec.Limits = limits.Resolve(spec.Limits)
	return network.AdmitTokens(spec.Egress)
}

// admitGroup rejects an invalid group, and gives a sandbox with one the name that its callers know it by.
func admitGroup(spec *runner.Spec) error {
	if spec.Egress == nil || spec.Egress.Group == "" {
		return nil
	}
	err := spec.Egress.CheckGroup()
	if err == nil && spec.Name != "" {
		err = runner.CheckMember(spec.Name)
	}
	if err != nil {
		return ipc.Errorf(ipc.CodeInvalid, "create sandbox %q in group %q: %w", spec.Name, spec.Egress.Group, err)
	}
	spec.Name = spec.FullName()
	return ValidName(spec.Name)
}

const keyMax = 256

// AdmitKey rejects an invalid key.
func AdmitKey(spec runner.Spec) error {
	if spec.Key != "" && spec.Lifetime != runner.Persistent || len(spec.Key) > keyMax {
		return ipc.Errorf(ipc.CodeInvalid, "create sandbox: key %.64q: longer than %d bytes, or the sandbox is not persistent", spec.Key, keyMax)
	}
	if spec.Replace && spec.Key == "" {
		return ipc.Errorf(ipc.CodeInvalid, "create sandbox: replace needs a key")
	}
	return nil
}

// admitDefaults rejects invalid settings of commands.
func admitDefaults(d runner.Defaults) error {
	if d.Dir != "" && !filepath.IsAbs(d.Dir) || strings.ContainsRune(d.Dir, 0) {
		return ipc.Errorf(ipc.CodeInvalid, "create sandbox: directory %q: not absolute", d.Dir)
	}
	if !variables(append(slices.Clone(d.Env), "PATH="+strings.Join(d.Path, ":"))) {
		return ipc.Errorf(ipc.CodeInvalid, "create sandbox: environment: not NAME=VALUE")
	}
	return nil
}

// variables reports whether each entry of env is NAME=VALUE.
func variables(env []string) bool {
	return !slices.ContainsFunc(env, func(e string) bool { return strings.Index(e, "=") <= 0 || strings.ContainsRune(e, 0) })
}

// layersMax is overlayfs's limit on lower layers.
const layersMax = 500

// admitRootfs rejects an invalid image. Only "host" has no Rootfs.
func admitRootfs(spec *runner.Spec) error {
	r := spec.Rootfs
	invalid := func(format string, a ...any) error {
		return ipc.Errorf(ipc.CodeInvalid, "create sandbox: image %q: %w", spec.Image, fmt.Errorf(format, a...))
	}
	switch {
	case r == nil && spec.Image == "host":
		return nil
	case r == nil:
		return invalid("not known")
	case r.Dir != "" && len(r.Layers) > 0:
		return invalid("both layers and a directory")
	case r.Dir != "" && !filepath.IsAbs(r.Dir), r.Dir == "" && !filepath.IsAbs(r.Store), r.Store != "" && !filepath.IsAbs(r.Store):
		return invalid("a path is not absolute")
	case len(r.Layers) > layersMax:
		return invalid("%d layers; overlayfs takes %d", len(r.Layers), layersMax)
	case r.StopSignal < 0 || r.StopSignal > 64:
		return invalid("stop signal %d: there is no such signal", r.StopSignal)
	case r.WorkingDir != "" && !filepath.IsAbs(r.WorkingDir):
		return invalid("working directory %q: not absolute", r.WorkingDir)
	case strings.ContainsRune(r.WorkingDir, 0):
		return invalid("working directory %q: NUL byte", r.WorkingDir)
	case !variables(r.Env):
		return invalid("environment: not NAME=VALUE")
	}
	for _, id := range r.Layers {
		if err := layers.DiffID(id).Validate(); err != nil {
			return invalid("layer %q: %w", id, err)
		}
	}
	return nil
}

// userFits rejects a user outside the id map.
func (i *identity) userFits() error {
	u := i.spec.User
	if u == nil {
		return nil
	}
	if u.UID >= i.machine.Boot.UIDs() || u.GID >= i.machine.Boot.GIDs() {
		return &ipc.Error{
			Code: ipc.CodeInvalid,
			Text: fmt.Sprintf("set user %d:%d: not in the id map, which has %d ids", u.UID, u.GID, i.machine.Boot.UIDs()),
			Hint: i.machine.Boot.MapFix,
		}
	}
	return nil
}

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
			diffs = append(diffs, "secret "+k.Name+": the sandbox was started without it")
		case has[at] != k:
			diffs = append(diffs, "secret "+k.Name+": the sandbox was started with another value, host or header")
		}
	}
	return diffs
}

// CredentialsUnlike describes each secret of asked that the sandbox lacks, or has with another value, host or header,
// and each route whose token it has not. The texts contain no values. asked may be nil.
func (i *identity) CredentialsUnlike(asked *runner.Egress) []string {
	diffs := i.SecretsUnlike(SecretsOf(asked))
	if asked == nil || i.egress == nil {
		return diffs // another set of routes is another argument: see runner.Arguments
	}
	for _, r := range asked.Routes {
		if slices.ContainsFunc(i.egress.Routes, func(h runner.Route) bool { return h.Port == r.Port && h.Token != r.Token }) {
			diffs = append(diffs, fmt.Sprintf("route on port %d: the sandbox was started with another token", r.Port))
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
	err.Hint = "demesne stop " + i.id + " ends its processes; the next command starts it again with its own secrets"
	if i.egress == nil {
		err.Hint = "it has no network: create a sandbox with --egress or --allow-domain to use a secret"
	}
	return err
}
