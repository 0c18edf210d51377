package client

import (
	"fmt"
	"os"
	"strconv"
)

// EnvPoolSize names the variable for the number of prepared sandboxes that a runner may keep: from 0 to [MaxPoolSize].
// The value is read by the caller that starts the runner.
const EnvPoolSize = "DEMESNE_POOL_SIZE"

// MaxPoolSize bounds the cost of prepared sandboxes, of about 1 MiB each. Without [EnvPoolSize] the number is
// defaultPoolSize.
const (
	MaxPoolSize     = 16
	defaultPoolSize = 4
)

func poolSize() (int, error) {
	text := os.Getenv(EnvPoolSize)
	if text == "" {
		return defaultPoolSize, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > MaxPoolSize {
		return 0, fmt.Errorf("%s %q: not a number from 0 to %d", EnvPoolSize, text, MaxPoolSize)
	}
	return n, nil
}
