package operator

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/cmdline"
	"demesne/runner"
	"demesne/session"
)

// Variables of a program for models.
const (
	VarImages  = "DEMESNE_ALLOWED_IMAGES"
	VarDomains = "DEMESNE_ALLOWED_DOMAINS" // rules that a model may use without a person's word
	VarEgress  = "DEMESNE_MAX_EGRESS"      // the widest mode
	VarSecrets = "DEMESNE_SECRETS"         // the namespace of the stored secrets that models may use
	VarAgents  = "DEMESNE_NAMESPACE_AGENTS"

	varImage   = "DEMESNE_DEFAULT_IMAGE"
	varMemory  = "DEMESNE_MAX_MEMORY"
	varDisk    = "DEMESNE_MAX_DISK"
	varPIDs    = "DEMESNE_MAX_PIDS"
	varCPUs    = "DEMESNE_MAX_CPUS"
	varTimeout = "DEMESNE_MAX_TIMEOUT"
	varCost    = "DEMESNE_MAX_COST_USD"
	varTokens  = "DEMESNE_MAX_TOKENS"
)

// LimitVariable returns the variable that bounds a limit.
func LimitVariable(limit string) string {
	return map[string]string{"memory": varMemory, "cpus": varCPUs, "pids": varPIDs, "disk": varDisk}[limit]
}

// FromEnvironment returns the bounds of the models of a user. Where the environment has no limit, the capacity of the
// machine is the most.
func FromEnvironment(getenv func(string) string) (b session.Bounds, err error) {
	m, err := thisMachine()
	if err != nil {
		return b, err
	}
	return fromEnvironment(getenv, m)
}

func fromEnvironment(getenv func(string) string, m machine) (b session.Bounds, err error) {
	b = session.Bounds{Image: getenv(varImage), Egress: getenv(VarEgress), Max: m.most(), MaxTimeout: runner.Longest, AllowedImages: Fields(getenv(VarImages))}
	b.Agents, _ = strconv.ParseBool(getenv(VarAgents))
	if b.AllowedDomains, err = ParseRules(getenv(VarDomains)); err != nil {
		return b, err
	}
	take := func(variable string, parse func(string) error) {
		if v := getenv(variable); v != "" && err == nil {
			if wrong := parse(v); wrong != nil {
				err = fmt.Errorf("%s %q: %w", variable, v, wrong)
			}
		}
	}
	take(varMemory, cmdline.Bytes(&b.Max.Memory))
	take(varDisk, cmdline.Bytes(&b.Max.Disk))
	take(varPIDs, number(&b.Max.PIDs))
	take(varTokens, number(&b.MaxTokens))
	take(varCPUs, fraction(&b.Max.CPUs, "not a number of processors"))
	take(varCost, fraction(&b.MaxCost, "not a number of dollars above 0, such as 2.50"))
	take(varTimeout, func(s string) (err error) {
		if b.MaxTimeout, err = time.ParseDuration(s); err != nil || b.MaxTimeout < time.Second || b.MaxTimeout > runner.Longest {
			return fmt.Errorf("not a duration from 1s to 48h, such as 30m")
		}
		return nil
	})
	return b, err
}

func number(to *int64) func(string) error {
	return func(s string) (err error) {
		if *to, err = strconv.ParseInt(s, 10, 64); err != nil || *to < 1 {
			return fmt.Errorf("not a number of at least 1")
		}
		return nil
	}
}

func fraction(to *float64, wrong string) func(string) error {
	return func(s string) (err error) {
		if *to, err = strconv.ParseFloat(s, 64); err != nil || !(*to > 0) || math.IsInf(*to, 0) {
			return fmt.Errorf("%s", wrong)
		}
		return nil
	}
}

// machine is the capacity of a machine.
type machine struct {
	memory, pids int64
	cpus         int
}

// most returns the most that a model of the machine's user may ask for.
func (m machine) most() runner.Limits {
	return runner.Limits{
		Memory: m.memory / 4 * 3, CPUs: float64(m.cpus),
		PIDs: min(max(m.pids/4, runner.DefaultPIDs), 1<<15), Disk: max(m.memory/2, runner.DefaultDisk), // the scratch space may be a tmpfs, in memory
	}
}

func thisMachine() (m machine, err error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return m, os.NewSyscallError("sysinfo", err)
	}
	m.memory, m.cpus, m.pids = int64(info.Totalram)*int64(info.Unit), runtime.NumCPU(), math.MaxInt64
	for _, name := range []string{"pid_max", "threads-max"} {
		b, err := os.ReadFile("/proc/sys/kernel/" + name)
		if err != nil {
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil {
			m.pids = min(m.pids, n)
		}
	}
	return m, nil
}
