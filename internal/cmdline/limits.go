package cmdline

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"demesne/internal/text"
)

// Minimum limits: below these demesne-init does not start, or nothing can be written.
const (
	leastMemory = 8 << 20
	leastDisk   = 1 << 20
	leastPIDs   = 16
	leastCPUs   = 0.01
	leastFiles  = 64
)

// Memory returns a setter for a memory limit.
func Memory(to *int64) func(string) error { return Size(to, leastMemory) }

// Disk returns a setter for a limit of what is written.
func Disk(to *int64) func(string) error { return Size(to, leastDisk) }

// PIDs returns a setter for a limit of processes.
func PIDs(to *int64) func(string) error {
	return func(s string) error {
		if s == "none" {
			*to = text.Unlimited
			return nil
		}
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil {
			return errors.New("not a number of processes (such as 512, or none)")
		}
		if n < leastPIDs {
			return fmt.Errorf("less than a sandbox needs (%d)", leastPIDs)
		}
		*to = n
		return nil
	}
}

// CPUs returns a setter for a limit of processor time.
func CPUs(to *float64) func(string) error {
	return func(s string) error {
		if s == "none" {
			*to = text.Unlimited
			return nil
		}
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return errors.New("not a number of processors (such as 0.5, 2, or none)")
		}
		if f < leastCPUs {
			return fmt.Errorf("less than a process needs (%g)", leastCPUs)
		}
		*to = f
		return nil
	}
}

// Files returns a setter for a limit of descriptors.
func Files(to *int64) func(string) error {
	return func(s string) error {
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil {
			return errors.New("not a number of descriptors (such as 65536)")
		}
		if n < leastFiles {
			return fmt.Errorf("less than a sandbox needs (%d)", leastFiles)
		}
		*to = n
		return nil
	}
}
