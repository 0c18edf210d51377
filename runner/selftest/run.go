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

const (
	probeVerb = "probe" // the first argument of the program inside
	began     = "began" // what it prints before a bomb
)

// probes returns all probes, in the order of the report.
func probes() []probe {
	return slices.Concat(netProbes(), fileProbes(), processProbes(), initProbes(), terminalProbes(), callProbes(), bombs())
}

func chosen(id string, cases []string) bool {
	return len(cases) == 0 || slices.Contains(cases, id)
}

// perSandbox bounds a sandbox, and what starts it.
const perSandbox = 3 * time.Minute

// inSandbox starts the program inside of a target, and returns the outcomes of its probes. Its error can come with the outcomes
// of the first probes.
func inSandbox(ctx context.Context, target string, s *scene, cases []string) ([]outcome, error) {
	text, err := json.Marshal(s.facts)
	if err != nil {
		return nil, err
	}
	wanted, apart := 0, []int(nil)
	for i, p := range probes() {
		switch {
		case !chosen(p.id, cases):
		case p.apart:
			apart = append(apart, i)
		default:
			wanted++
		}
	}
	var all []outcome
	if wanted > 0 {
		said, err := s.start(ctx, target, string(text), strings.Join(cases, ","))
		all = s.judge(said.outcomes)
		if ran := len(said.outcomes); ran < wanted {
			return all, fmt.Errorf("target %q: %d of %d probes ran: %w", target, ran, wanted, err)
		}
	}
	for _, i := range apart {
		said, err := s.start(ctx, target, fmt.Sprint("-one=", i), string(text))
		switch {
		case len(said.outcomes) == 1:
			all = append(all, said.outcomes[0])
		case said.began:
			p := probes()[i]
			all = append(all, p.outcome(fmt.Errorf("the sandbox ended: %w", err)))
		default:
			return all, fmt.Errorf("target %q: %q did not begin: %w", target, probes()[i].title, err)
		}
	}
	return all, nil
}

// said is the output of the program inside.
type said struct {
	began    bool // a bomb of its own began
	outcomes []outcome
}

// start starts the program inside with arguments, and waits for its end. The error tells how it ended, and is never nil.
func (s *scene) start(ctx context.Context, target string, args ...string) (r said, err error) {
	ctx, cancel := context.WithTimeout(ctx, perSandbox)
	defer cancel()
	argv, err := s.command(target)
	if err != nil {
		return r, err
	}
	tail := append([]string{"selftest", probeVerb}, args...)
	if argv[0] == "srt" { // it takes one line of a shell
		for i := range tail {
			tail[i] = "'" + strings.ReplaceAll(tail[i], "'", `'\''`) + "'"
		}
		argv, tail = []string{argv[0], "-c", argv[1] + " " + strings.Join(tail, " ")}, nil
	}
	cmd := exec.CommandContext(ctx, argv[0], append(argv[1:], tail...)...)
	cmd.Env = append(os.Environ(), s.facts.Variable+"="+s.facts.Secret, "SSH_AUTH_SOCK="+s.facts.Path)
	cmd.ExtraFiles, cmd.WaitDelay = []*os.File{s.open}, time.Second
	if s.terminal, err = newTerminal(); err != nil {
		return r, err
	}
	s.terminal.attach(cmd)
	defer func() { s.typed = s.terminal.end() }()
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return r, err
	}
	if err := cmd.Start(); err != nil {
		return r, fmt.Errorf("start %q: %w", argv[0], err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var o outcome
		if lines.Text() == began {
			r.began = true
		} else if json.Unmarshal(lines.Bytes(), &o) == nil && o.Case != "" {
			r.outcomes = append(r.outcomes, o)
		}
	}
	err = cmp.Or(cmd.Wait(), errors.New("exit code 0"))
	return r, fmt.Errorf("%w: %s", errors.Join(err, ctx.Err()), strings.TrimSpace(errs.String()))
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
		return []string{demesne, "run", "--timeout", "3m", "--memory", bombLimit, "--in", s.program, "--", "/in/" + filepath.Base(s.program)}, nil
	case "bwrap":
		return []string{
			"bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
			"--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--ro-bind", s.program, "/probe", "/probe",
		}, nil
	case "podman":
		root := filepath.Join(s.dir, "root")
		if err := exec.Command("mkdir", "-p", root+"/tmp").Run(); err != nil {
			return nil, fmt.Errorf("prepare a root: %w", err)
		}
		if err := exec.Command("cp", s.program, root+"/probe").Run(); err != nil {
			return nil, fmt.Errorf("prepare a root: %w", err)
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
