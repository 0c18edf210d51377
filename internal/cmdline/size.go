package cmdline

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Unlimited is the size of "none".
const Unlimited = -1

// unit returns the factor of a unit, or 0. Units are powers of 1024 in every spelling (k, kb, KiB), as in docker.
func unit(name string) int64 {
	switch name = strings.ToLower(name); name {
	case "", "b":
		return 1
	}
	letter, rest := name[:1], name[1:]
	if i := strings.Index("kmgt", letter); i >= 0 && (rest == "" || rest == "b" || rest == "ib") {
		return 1 << (10 * (i + 1))
	}
	return 0
}

var errSize = errors.New("not a size (such as 512m, 2g, 1GiB, 1048576 or none)")

// parseSize parses a number of bytes, or "none".
func parseSize(s string) (int64, error) {
	if s == "none" {
		return Unlimited, nil
	}
	end := strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if end < 0 {
		end = len(s)
	}
	u := unit(s[end:])
	if u == 0 {
		return 0, errSize
	}
	if n, err := strconv.ParseInt(s[:end], 10, 64); err == nil {
		if n > math.MaxInt64/u {
			return 0, errors.New("too large")
		}
		return n * u, nil
	}
	f, err := strconv.ParseFloat(s[:end], 64)
	if err != nil {
		return 0, errSize
	}
	if f *= float64(u); f >= math.MaxInt64 {
		return 0, errors.New("too large")
	}
	return int64(f), nil
}

// Size returns a setter for a size of at least least bytes.
func Size(to *int64, least int64) func(string) error {
	return func(s string) error {
		n, err := parseSize(s)
		if err != nil {
			return err
		}
		if n != Unlimited && n < least {
			return fmt.Errorf("less than a process needs (%s)", formatSize(least))
		}
		*to = n
		return nil
	}
}

// Bytes returns a setter for a size of at least one byte, without "none".
func Bytes(to *int64) func(string) error {
	return func(s string) error {
		n, err := parseSize(s)
		if err == nil && n < 1 {
			err = errors.New("not a size of at least 1 byte (such as 512m or 2g)")
		}
		if err == nil {
			*to = n
		}
		return err
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

// FormatBytes formats a size for reading: 12.3 MiB.
func FormatBytes(n int64) string {
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

// Duration returns a setter for 90, 90s or 1m30s. A bare number is seconds, as in timeout(1).
func Duration(to *time.Duration) func(string) error {
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
