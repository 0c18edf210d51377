package client

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"demesne/runner"
)

// Variables that bound the sum of the limits of all live sandboxes, applied to sandboxes that this client creates.
// Without a variable that sum is unbounded. The runner handles real shortages of the machine; see package limits.
const (
	EnvTotalMemory = "DEMESNE_MAX_TOTAL_MEMORY" // 16g
	EnvTotalDisk   = "DEMESNE_MAX_TOTAL_DISK"
	EnvTotalPIDs   = "DEMESNE_MAX_TOTAL_PIDS"
	EnvTotalCPUs   = "DEMESNE_MAX_TOTAL_CPUS"
)

// totals reads the variables. It returns nil if none is set, and an error for an invalid value.
func totals(env func(string) string) (*runner.Limits, error) {
	var l runner.Limits
	for _, v := range []struct {
		name string
		to   *int64
		unit bool
	}{{EnvTotalMemory, &l.Memory, true}, {EnvTotalDisk, &l.Disk, true}, {EnvTotalPIDs, &l.PIDs, false}} {
		n, err := amount(env(v.name), v.unit)
		if err != nil {
			return nil, fmt.Errorf("%s %q: %w", v.name, env(v.name), err)
		}
		*v.to = int64(n)
	}
	var err error
	if l.CPUs, err = amount(env(EnvTotalCPUs), false); err != nil {
		return nil, fmt.Errorf("%s %q: %w", EnvTotalCPUs, env(EnvTotalCPUs), err)
	}
	if l == (runner.Limits{}) {
		return nil, nil
	}
	return &l, nil
}

// amount reads a positive number, with an optional unit of bytes such as 512m or 16g if unit is set. An empty text is
// 0.
func amount(text string, unit bool) (float64, error) {
	if text == "" {
		return 0, nil
	}
	number, times := text, 1.0
	if i := strings.IndexByte("kmgt", text[len(text)-1]|0x20); unit && i >= 0 {
		number, times = text[:len(text)-1], math.Pow(1024, float64(i+1))
	}
	n, err := strconv.ParseFloat(number, 64)
	if n *= times; err != nil || !(n > 0 && n < 1<<62) {
		return 0, fmt.Errorf("not a limit (such as 16, or 16g of bytes)")
	}
	return n, nil
}

func ownTotals() (*runner.Limits, error) { return totals(os.Getenv) }
