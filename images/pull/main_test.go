package pull

import (
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/sirupsen/logrus"
)

// TestMain keeps the library quiet, as the program does: what it has to say is in its errors. It is also the
// process that a test starts to be killed, or to have a disk of its own.
func TestMain(m *testing.M) {
	logrus.SetOutput(io.Discard)
	if spec := os.Getenv(childEnv); spec != "" {
		if err := runChild(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
