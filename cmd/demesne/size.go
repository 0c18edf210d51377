package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// unlimited means no limit in a runner.Limits.
const unlimited = -1

// Minimum limits: below these demesne-init does not start, or nothing can be written.
const (
	leastMemory = 8 << 20
	leastDisk   = 1 << 20
	leastPIDs   = 16
	leastCPUs   = 0.01
)

// units are powers of 1024 in every spelling (k, kb, KiB), as in docker.
var units = map[string]int64{
	"": 1, "b": 1,
	"k": 1 << 10, "kb": 1 << 10, "kib": 1 << 10,
	"m": 1 << 20, "mb": 1 << 20, "mib": 1 << 20,
	"g": 1 << 30, "gb": 1 << 30, "gib": 1 << 30,
	"t": 1 << 40, "tb": 1 << 40, "tib": 1 << 40,
}

var errSize = errors.New("not a size (such as 512m, 2g, 1GiB, 1048576 or none)")

// parseSize parses a number of bytes, or "none".
func parseSize(s string) (int64, error) {
	if s == "none" {
		return unlimited, nil
	}
	end := strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if end < 0 {
		end = len(s)
	}
	unit, ok := units[strings.ToLower(s[end:])]
	if !ok {
		return 0, errSize
	}
	if n, err := strconv.ParseInt(s[:end], 10, 64); err == nil {
		if n > math.MaxInt64/unit {
			return 0, errors.New("too large")
		}
		return n * unit, nil
	}
	f, err := strconv.ParseFloat(s[:end], 64)
	if err != nil {
		return 0, errSize
	}
	if f *= float64(unit); f >= math.MaxInt64 {
		return 0, errors.New("too large")
	}
	return int64(f), nil
}

// sizeFlag returns a setter for a size of at least least bytes.
func sizeFlag(to *int64, least int64) func(string) error {
	return func(s string) error {
		n, err := parseSize(s)
		if err != nil {
			return err
		}
		if n != unlimited && n < least {
			return fmt.Errorf("less than a process needs (%s)", formatSize(least))
		}
		*to = n
		return nil
	}
}

// formatSize formats n in the form that parseSize accepts.
func formatSize(n int64) string {
	if n < 0 {
		return "none"
	}
	suffix := ""
	for _, next := range []string{"k", "m", "g", "t"} {
		if n == 0 || n%1024 != 0 {
			break
		}
		n, suffix = n/1024, next
	}
	return strconv.FormatInt(n, 10) + suffix
}

// formatBytes formats a size for reading: 12.3 MiB.
func formatBytes(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/1024, 0
	for ; f >= 1000 && i < len(units)-1; i++ {
		f /= 1024
	}
	return fmt.Sprintf("%.1f %ciB", f, units[i])
}

func pidsFlag(to *int64) func(string) error {
	return func(s string) error {
		if s == "none" {
			*to = unlimited
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

func cpusFlag(to *float64) func(string) error {
	return func(s string) error {
		if s == "none" {
			*to = unlimited
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

// durationFlag returns a setter for 90, 90s or 1m30s; a bare number is seconds, as in timeout(1).
func durationFlag(to *time.Duration) func(string) error {
	return func(s string) error {
		d, err := time.ParseDuration(s)
		if f, ferr := strconv.ParseFloat(s, 64); ferr == nil && f < math.MaxInt64/float64(time.Second) {
			d, err = time.Duration(f*float64(time.Second)), nil
		}
		if err != nil {
			return errors.New("not a duration (such as 30s, 5m, 1h30m)")
		}
		if d <= 0 {
			return errors.New("must be more than zero")
		}
		*to = d
		return nil
	}
}
