package devcontainer

import (
	"fmt"
	"strconv"
	"strings"
)

// Lacks returns a line for each requirement that a machine does not fulfil. Sizes are in bytes.
func (h HostRequirements) Lacks(cpus int, memory, storage uint64) (lines []string) {
	if h.CPUs > float64(cpus) {
		lines = append(lines, fmt.Sprintf("hostRequirements: cpus: %v, and this machine has %d", h.CPUs, cpus))
	}
	for _, c := range []struct {
		name string
		need text
		has  uint64
	}{{"memory", h.Memory, memory}, {"storage", h.Storage, storage}} {
		need, err := size(string(c.need))
		switch {
		case err != nil:
			lines = append(lines, fmt.Sprintf("hostRequirements: %s: %v", c.name, err))
		case need > c.has:
			lines = append(lines, fmt.Sprintf("hostRequirements: %s: %s, and this machine has %d MiB", c.name, c.need, c.has>>20))
		}
	}
	if gpu := string(h.GPU); gpu != "" && gpu != "false" && gpu != "null" && gpu != `"optional"` {
		lines = append(lines, "hostRequirements: gpu: a sandbox has none")
	}
	return lines
}

// size parses a number with tb, gb, mb or kb.
func size(s string) (uint64, error) {
	number, shift := strings.ToLower(s), 0
	for i, unit := range []string{"kb", "mb", "gb", "tb"} {
		if n, ok := strings.CutSuffix(number, unit); ok {
			number, shift = n, 10*(i+1)
			break
		}
	}
	if number == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 63-shift)
	if err != nil {
		return 0, fmt.Errorf("%q is not a size (such as 8gb)", s)
	}
	return n << shift, nil
}
