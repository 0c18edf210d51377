package client

import (
	"fmt"
	"os"
	"strconv"
)

// EnvSpares says, of the caller that starts a runner, how many sandboxes that may make in
// advance while it goes on: from 0 to [MaxSpares].
const EnvSpares = "DEMESNE_SPARES"

// MaxSpares bounds what spares cost, each of them about 1 MiB. Without [EnvSpares] there
// are defaultSpares at the most.
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
