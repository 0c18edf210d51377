package toolbackend

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
	"demesne/mcp"
	"demesne/runner"
)

// Variables that set the most a model may ask for.
const (
	varMemory  = "DEMESNE_MAX_MEMORY"
	varDisk    = "DEMESNE_MAX_DISK"
	varPIDs    = "DEMESNE_MAX_PIDS"
	varCPUs    = "DEMESNE_MAX_CPUS"
	varTimeout = "DEMESNE_MAX_TIMEOUT"
	varCost    = "DEMESNE_MAX_COST_USD"
	varTokens  = "DEMESNE_MAX_TOKENS"
)

// ceilings returns the limits from the environment, or else the capacity of the machine.
func ceilings(env func(string) string, m machine) (c mcp.Ceilings, err error) {
	take := func(variable string, parse func(string) error) {
		if v := env(variable); v != "" && err == nil {
			if wrong := parse(v); wrong != nil {
				err = fmt.Errorf("%s %q: %w", variable, v, wrong)
			}
		}
	}
	c.Timeout = runner.Longest
	c.Limits = runner.Limits{
		Memory: m.memory / 4 * 3, CPUs: float64(m.cpus),
		PIDs: min(max(m.pids/4, runner.DefaultPIDs), 1<<15), Disk: max(m.memory/2, runner.DefaultDisk), // the scratch space may be a tmpfs, in memory
	}
	take(varMemory, cmdline.Bytes(&c.Limits.Memory))
	take(varDisk, cmdline.Bytes(&c.Limits.Disk))
	take(varPIDs, func(s string) (err error) {
		if c.Limits.PIDs, err = strconv.ParseInt(s, 10, 64); err != nil || c.Limits.PIDs < 1 {
			return fmt.Errorf("not a number of at least 1")
		}
		return nil
	})
	take(varCPUs, func(s string) (err error) {
		if c.Limits.CPUs, err = strconv.ParseFloat(s, 64); err != nil || !(c.Limits.CPUs > 0) || math.IsInf(c.Limits.CPUs, 0) {
			return fmt.Errorf("not a number of processors")
		}
		c.Unasked.CPUs = c.Limits.CPUs
		return nil
	})
	take(varTimeout, func(s string) (err error) {
		if c.Timeout, err = time.ParseDuration(s); err != nil || c.Timeout < time.Second || c.Timeout > runner.Longest {
			return fmt.Errorf("not a duration from 1s to 48h, such as 30m")
		}
		return nil
	})
	take(varCost, func(s string) (err error) {
		if c.Cost, err = strconv.ParseFloat(s, 64); err != nil || !(c.Cost > 0) || math.IsInf(c.Cost, 0) {
			return fmt.Errorf("not a number of dollars above 0, such as 2.50")
		}
		return nil
	})
	take(varTokens, func(s string) (err error) {
		if c.Tokens, err = strconv.ParseInt(s, 10, 64); err != nil || c.Tokens < 1 {
			return fmt.Errorf("not a number of at least 1")
		}
		return nil
	})
	below := func(ceiling, usual int64) int64 {
		if ceiling < usual {
			return ceiling
		}
		return 0
	}
	c.Unasked.Memory = below(c.Limits.Memory, m.memory/2)
	c.Unasked.PIDs, c.Unasked.Disk = below(c.Limits.PIDs, runner.DefaultPIDs), below(c.Limits.Disk, runner.DefaultDisk)
	return c, err
}

// machine is the capacity of a machine.
type machine struct {
	memory, pids int64
	cpus         int
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
