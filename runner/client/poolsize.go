package client

import (
	"fmt"
	"os"
	"strconv"
)

// EnvSpares names the variable for the number of prepared sandboxes that a runner may keep: from 0 to [MaxSpares].
// The value is read by the caller that starts the runner.
const EnvSpares = "DEMESNE_POOL_SIZE"

// MaxSpares bounds the cost of prepared sandboxes, of about 1 MiB each. Without [EnvSpares] the number is
// defaultSpares.
const (
	MaxSpares     = 16
	defaultSpares = 4
)

func sparesWanted() (int, error) {
	text := os.Getenv(EnvSpares)
	if text == "" {
		return defaultSpares, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > MaxSpares {
		return 0, fmt.Errorf("%s %q: not a number from 0 to %d", EnvSpares, text, MaxSpares)
	}
	return n, nil
}
