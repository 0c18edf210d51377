package selftest

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// probeVerb is the first argument of the program inside.
const probeVerb = "probe"

// probes returns all probes, in the order of the report.
func probes() []probe {
	return slices.Concat(netProbes(), fileProbes(), processProbes(), initProbes(), callProbes())
}

func chosen(id string, cases []string) bool {
	return len(cases) == 0 || slices.Contains(cases, id)
}

// inSandbox starts the program inside of a target, and returns the outcomes of its probes. Its error can come with the outcomes
// of the first probes.
func inSandbox(ctx context.Context, target string, s *scene, cases []string) ([]outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	argv, err := s.command(target)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(s.facts)
	if err != nil {
		return nil, err
	}
	tail := []string{"selftest", probeVerb, string(text), strings.Join(cases, ",")}
	if argv[0] == "srt" { // it takes one line of a shell
		for i := range tail {
			tail[i] = "'" + strings.ReplaceAll(tail[i], "'", `'\''`) + "'"
		}
		argv = []string{argv[0], "-c", argv[1] + " " + strings.Join(tail, " ")}
		tail = nil
	}
	cmd := exec.CommandContext(ctx, argv[0], append(argv[1:], tail...)...)
	cmd.Env = append(os.Environ(), s.facts.Variable+"="+s.facts.Secret, "SSH_AUTH_SOCK="+s.facts.Path)
	cmd.ExtraFiles, cmd.WaitDelay = []*os.File{s.open}, time.Second
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %q: %w", argv[0], err)
	}
	var all []outcome
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var o outcome
		if json.Unmarshal(lines.Bytes(), &o) == nil && o.Case != "" {
			all = append(all, o)
		}
	}
	err = cmp.Or(cmd.Wait(), errors.New("exit code 0"))
	wanted := len(slices.DeleteFunc(probes(), func(p probe) bool { return !chosen(p.id, cases) }))
	if ran := len(all); ran < wanted {
		err = fmt.Errorf("target %q: %d of %d probes ran: %v: %s", target, ran, wanted, errors.Join(err, ctx.Err()), strings.TrimSpace(errs.String()))
		return s.judge(all), err
	}
	return s.judge(all), nil
}

// command returns how a target starts this program. Any other target is the beginning of a command line.
func (s *scene) command(target string) ([]string, error) {
	demesne := filepath.Join(filepath.Dir(s.program), "demesne")
	if _, err := os.Stat(demesne); err != nil {
		demesne = filepath.Join(filepath.Dir(s.program), "../../bin/demesne")
	}
	switch target {
	case "":
		return []string{s.program}, nil
	case "demesne":
		return []string{demesne, "run", "--timeout", "1m", "--in", s.program, "--", "/in/" + filepath.Base(s.program)}, nil
	case "bwrap":
		return []string{
			"bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
			"--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--ro-bind", s.program, "/probe", "/probe",
		}, nil
	case "podman":
		root := filepath.Join(s.dir, "root")
		err := errors.Join(os.Mkdir(root, 0o755), os.Mkdir(root+"/tmp", 0o777), os.Link(s.program, root+"/probe"))
		if err != nil {
			if err = exec.Command("cp", s.program, root+"/probe").Run(); err != nil {
				return nil, fmt.Errorf("prepare a root: %w", err)
			}
		}
		return []string{"podman", "run", "--rm", "--network", "none", "--rootfs", root, "/probe"}, nil
	case "srt":
		return []string{"srt", s.program}, nil
	}
	words := strings.Fields(target)
	if len(words) == 0 {
		return nil, errors.New("empty target")
	}
	return append(words, s.program), nil
}
