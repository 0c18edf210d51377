package kernels_test

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"demesne/kernels"
)

// refusing closes the first connections to a kernel.
type refusing struct {
	local
	left *atomic.Int32
}

func (r refusing) Dial(ctx context.Context, port uint16) (io.ReadWriteCloser, error) {
	if r.left.Add(-1) < 0 {
		return r.local.Dial(ctx, port)
	}
	ours, theirs := net.Pipe()
	go func() {
		io.CopyN(io.Discard, theirs, 64) // our greeting
		theirs.Close()
	}()
	return ours, nil
}

// TestStartRedials checks that a connection which ends before the kernel has answered is made again, and that the error of
// a kernel that never answers can be read.
func TestStartRedials(t *testing.T) {
	if exec.Command("/usr/bin/python3", "-c", "import ipykernel").Run() != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("python3-ipykernel is not installed")
		}
		t.Skip("python3-ipykernel is not installed")
	}
	s := kernels.Spec{Argv: []string{"/usr/bin/python3", "-m", "ipykernel_launcher", "-f", "{connection_file}"}, Language: "python"}
	for refused, want := range map[int32]string{2: "", 1000: "start kernel: connect to kernel: it closed the connection before it answered"} {
		sb := refusing{local{t}, &atomic.Int32{}}
		sb.left.Store(refused)
		k, err := kernels.Start(t.Context(), sb, s, t.TempDir(), "")
		if err == nil {
			k.Kill()
		}
		if got := errorText(err); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%d refused: %v", refused, err)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
