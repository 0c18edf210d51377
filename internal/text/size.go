package text

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
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

// ParseSize parses a number of bytes, or "none".
func ParseSize(s string) (int64, error) {
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

// FormatSize formats n in the form that ParseSize accepts.
func FormatSize(n int64) string {
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

// ParseBytes parses a size of at least one byte, without "none".
func ParseBytes(s string) (int64, error) {
	n, err := ParseSize(s)
	if err == nil && n < 1 {
		err = errors.New("not a size of at least 1 byte (such as 512m or 2g)")
	}
	return n, err
}
