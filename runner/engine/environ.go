package engine

import (
	"cmp"
	"strings"

	"demesne/runner"
	"demesne/runner/guestapi"
	"demesne/runner/protocol"
	"demesne/runner/wire"
)

func (s *sandbox) guestExec(x *execution, req protocol.ExecRequest) (guestapi.Exec, error) {
	who, err := s.runsAs(req.User)
	if err != nil {
		return guestapi.Exec{}, err
	}
	g := guestapi.Exec{
		Exec: x.id, Argv: req.Argv, Dir: req.Dir, Rlimits: s.rlimits(),
		UID: who.UID, GID: who.GID, Groups: who.Groups,
	}
	env := append(runner.DefaultEnv(), s.paths.env()...)
	env = append(env, "HOME="+who.Home)
	dir := s.paths.workspace
	if image := s.spec.Rootfs; image != nil {
		env = append(env, image.Env...)
		dir = cmp.Or(image.WorkingDir, dir)
	}
	if s.net != nil {
		env = append(env, s.net.env(s.tree.CertFile)...)
	}
	g.Env = wire.ByteStrings(lastWins(append(env, wire.Strings(req.Env)...)))
	if len(g.Dir) == 0 {
		g.Dir = wire.Bytes(dir)
	}
	g.SetIDs = s.e.boot.UIDs() > 1
	return g, nil
}

// env names the places of a sandbox for its commands.
func (p paths) env() []string {
	return []string{
		"HOME=" + p.home, "TMPDIR=" + p.tmp,
		"DEMESNE_IN=" + p.in, "DEMESNE_OUT=" + p.out, "DEMESNE_WORKSPACE=" + p.workspace,
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
