package pull

import (
	"fmt"
	"os"
	"testing"
)

// TestMain silences the library's log, as the program does, because its errors say the same. It also runs
// the child processes that tests kill or give a disk of their own.
func TestMain(m *testing.M) {
	Quiet()
	if spec := os.Getenv(childEnv); spec != "" {
		if err := runChild(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
