package sandbox

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/container"
	"demesne/runner/ipc"
	"demesne/runner/limits"
	"demesne/runner/pid1/pid1api"
)

// defaultEnv is the initial environment of every command. No variable of the caller passes by default: API keys,
// SSH_AUTH_SOCK, LD_PRELOAD and the like stay outside (P14). --env passes single variables. PATH gets the caller's
// directories that exist inside, by Command.Path.
var defaultEnv = []string{
	"PATH=" + systemPath,
	"HOME=/root",
	"LANG=C.UTF-8",
	"IS_SANDBOX=1",
	"DEMESNE_IN=/in",
	"DEMESNE_OUT=/out",
	"DEMESNE_WORKSPACE=/workspace",
	// One query at a time and short waits: a name that is not allowed fails fast.
	"RES_OPTIONS=single-request-reopen timeout:2 attempts:3",
	// Tools that report telemetry stall on hosts that they cannot reach.
	"DO_NOT_TRACK=1",
	"WRANGLER_SEND_METRICS=false",
	"WRANGLER_SEND_ERROR_REPORTS=false",
	"NEXT_TELEMETRY_DISABLED=1",
	"NUXT_TELEMETRY_DISABLED=1",
	"NG_CLI_ANALYTICS=false",
	"STORYBOOK_DISABLE_TELEMETRY=1",
	"VERCEL_TELEMETRY_DISABLED=1",
	"YARN_ENABLE_TELEMETRY=0",
	"NO_UPDATE_NOTIFIER=1",
	"npm_config_fund=false",
	"DISABLE_OPENCOLLECTIVE=true",
	"PIP_DISABLE_PIP_VERSION_CHECK=1",
	"PIP_NO_INPUT=1",
	"CHECKPOINT_DISABLE=1",
	"NX_NO_CLOUD=true",
}

// request translates the caller's request for x into the one to PID 1.
func (x *Execution) request(req api.ExecRequest) (pid1api.Exec, error) {
	s := x.s
	who, err := s.files.runsAs(req.User)
	if err != nil {
		return pid1api.Exec{}, err
	}
	g := pid1api.Exec{
		Exec: x.id, Argv: req.Argv, Else: s.files.inputsAt(req.Else), Dir: req.Dir, Rlimits: s.files.rlimits(s.group),
		UID: who.UID, GID: who.GID, Groups: who.Groups,
	}
	env := append(slices.Clone(defaultEnv), dirVariables(s.files.shown())...)
	env = append(env, "HOME="+who.Home)
	if s.files.tree == nil {
		env = append(env, unreadableSettings...)
	}
	own := ipc.Strings(req.Env)
	if image := s.spec.Rootfs; image != nil {
		env = append(env, image.Env...)
	} else {
		env = append(env, hostEnv(homeOf(who.Home, s.spec.Defaults.Env, own))...)
	}
	env, dir := append(env, s.spec.Defaults.Env...), startDir(s.spec, s.files.shown())
	if s.link.net != nil {
		env = append(env, s.link.net.Env(s.files.certFile())...)
	}
	env = lastWins(append(env, own...))
	if !setsPath(req.Env) {
		env = prefixPath(env, s.spec.Defaults.Path)
		if s.spec.Rootfs == nil {
			g.Path = slices.DeleteFunc(req.Path, func(dir ipc.Bytes) bool { return slices.Contains(s.spec.Defaults.Path, string(dir)) })
		}
	}
	g.Env = ipc.ByteStrings(env)
	if len(g.Dir) == 0 {
		g.Dir = ipc.Bytes(dir)
	}
	if s.machine.minimal() {
		g.Dir = ipc.Bytes(s.files.at(string(g.Dir)))
	}
	g.SetIDs = s.machine.Boot.UIDs() > 1
	return g, nil
}

// unreadableSettings make programs ignore the machine's own settings where Landlock, and no other root, hides them: the
// programs would report a refusal as a failure.
var unreadableSettings = []string{"GIT_CONFIG_NOSYSTEM=1", "SYSTEM_WGETRC=/dev/null"}

// setsPath reports whether env, which the caller named, has a PATH. The caller then gets exactly that one.
func setsPath(env []ipc.Bytes) bool {
	return slices.ContainsFunc(env, func(e ipc.Bytes) bool { return strings.HasPrefix(string(e), "PATH=") })
}

// prefixPath puts directories at the front of PATH.
func prefixPath(env, dirs []string) []string {
	for i, kv := range env {
		if value, ok := strings.CutPrefix(kv, "PATH="); ok {
			env[i] = "PATH=" + strings.Join(append(slices.Clone(dirs), value), ":")
		}
	}
	return env
}

// systemPath is PATH without the directories of a user.
const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// homeOf returns the HOME that a command gets: the last absolute one of the lists, or its account's.
func homeOf(home string, lists ...[]string) string {
	for _, kv := range slices.Concat(lists...) {
		if value, ok := strings.CutPrefix(kv, "HOME="); ok && path.IsAbs(value) {
			home = value
		}
	}
	return home
}

// hostEnv returns variables for commands on the host's files, whose /usr is read-only: installers write below the home
// directory, which a persistent sandbox keeps.
func hostEnv(home string) []string {
	env := []string{
		"PATH=" + home + "/.local/bin:" + systemPath,
		"npm_config_prefix=" + home + "/.local", // npm install -g
		"PIP_BREAK_SYSTEM_PACKAGES=1",           // pip then uses its user site, which is below ~/.local
		"TAR_OPTIONS=--no-same-owner",           // uid 0 in a sandbox cannot give files to any user
	}
	if file := npmGlobalConfig(func(path string) bool { return unix.Access(path, unix.F_OK) == nil }); file != "" {
		env = append(env, "npm_config_globalconfig="+file)
	}
	return env
}

// npmGlobalConfig returns the machine's own configuration of npm, or "". npm looks for it below its prefix, which hostEnv
// changes; by default that is the directory above node's. A sandbox sees the same file below /usr.
func npmGlobalConfig(exists func(path string) bool) string {
	for _, prefix := range []string{"/usr/local", "/usr"} {
		if !exists(prefix + "/bin/node") {
			continue
		}
		if file := prefix + "/etc/npmrc"; exists(file) {
			return file
		}
		return ""
	}
	return ""
}

// inputsAt returns command lines in which words that are inputs name them where they are: without a mount namespace there
// is no /in. Only whole words count.
func (f *files) inputsAt(lines [][]ipc.Bytes) [][]ipc.Bytes {
	if f.dirs.In == inside.In {
		return lines
	}
	for _, argv := range lines {
		for i, word := range argv {
			name, in := strings.CutPrefix(string(word), inside.In+"/")
			if in && slices.ContainsFunc(f.spec.Inputs, func(in runner.Input) bool { return in.Name == name }) {
				argv[i] = ipc.Bytes(f.dirs.In + "/" + name)
			}
		}
	}
	return lines
}

// startDir returns the directory of a command that names none. A workspace of the caller wins over the image's working
// directory.
func startDir(spec runner.Spec, d container.Dirs) string {
	image := ""
	if spec.Rootfs != nil && spec.Workspace == "" {
		image = spec.Rootfs.WorkingDir
	}
	return cmp.Or(spec.Defaults.Dir, image, d.Workspace)
}

// dirVariables returns the variables that name a sandbox's directories.
func dirVariables(d container.Dirs) []string {
	return []string{
		"HOME=" + d.Home, "TMPDIR=" + d.Tmp,
		"DEMESNE_IN=" + d.In, "DEMESNE_OUT=" + d.Out, "DEMESNE_WORKSPACE=" + d.Workspace,
	}
}

// lastWins keeps the last value of each name, in the order of first appearance.
func lastWins(env []string) []string {
	at := map[string]int{}
	var out []string
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		if i, ok := at[name]; ok {
			out[i] = kv
			continue
		}
		at[name] = len(out)
		out = append(out, kv)
	}
	return out
}

// rlimits returns the limits of the group. Without a user namespace it omits RLIMIT_NPROC, which would count the
// user's other processes (getrlimit(2)).
func (f *files) rlimits(g *limits.Group) []pid1api.Rlimit {
	r := g.Rlimits()
	if !f.machine.minimal() {
		return r
	}
	return slices.DeleteFunc(r, func(l pid1api.Rlimit) bool { return l.Resource == unix.RLIMIT_NPROC })
}
