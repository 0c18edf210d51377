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
	needsIPython(t)
	s := kernels.Spec{Argv: []string{"/usr/bin/python3", "-m", "ipykernel_launcher", "-f", "{connection_file}"}, Language: "python"}
	for refused, want := range map[int32]string{2: "", 1000: "start kernel: connect to kernel: it closed the connection before it answered"} {
		sb := refusing{local{t}, &atomic.Int32{}}
		sb.left.Store(refused)
		k, err := kernels.Start(t.Context(), sb, s, t.TempDir(), "", 1)
		if err == nil {
			k.Kill()
		}
		if got := errorText(err); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%d refused: %v", refused, err)
		}
	}
}

func needsIPython(t *testing.T) {
	t.Helper()
	if exec.Command("/usr/bin/python3", "-c", "import ipykernel").Run() != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("python3-ipykernel is not installed")
		}
		t.Skip("python3-ipykernel is not installed")
	}
}

// taken is a kernel whose first starts fail: another program has its ports, or the kernel ends because it cannot have them.
// It counts its starts in a file.
const taken = `
import json, os, socket, sys
how, last, count, file = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
with open(count, "a") as f: f.write("x")
if os.path.getsize(count) > last:
    os.execv("/usr/bin/python3", ["/usr/bin/python3", "-m", "ipykernel_launcher", "-f", file])
if how == "dies":
    sys.exit("zmq.error.ZMQError: Address already in use")
listener = socket.create_server(("127.0.0.1", json.load(open(file))["shell_port"]))
open_ones = []
while True:
    c, _ = listener.accept()
    if how == "answers":
        c.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"x" * 100)
        open_ones.append(c) # a close could discard the answer
        continue
    if how == "resets": c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    c.close()
`

// TestStartAgain checks that a kernel whose first start fails because of its ports is started once more, and that the error
// of one that always fails can be read.
func TestStartAgain(t *testing.T) {
	needsIPython(t)
	for how, want := range map[string]string{
		"dies": "start kernel: the kernel has ended", "answers": "start kernel: connect to kernel: another program answers at its port",
		"closes": "start kernel: connect to kernel: it closed the connection before it answered", "resets": "start kernel: connect to kernel: ",
	} {
		for last, starts := range map[string]int64{"1": 2, "9": 2} {
			count := t.TempDir() + "/count"
			s := kernels.Spec{Argv: []string{"/usr/bin/python3", "-c", taken, how, last, count, "{connection_file}"}, Language: "python"}
			k, err := kernels.Start(t.Context(), local{t}, s, t.TempDir(), "", 2)
			if err == nil {
				k.Kill()
			}
			if text := errorText(err); last == "1" && err != nil || last == "9" && (!strings.HasPrefix(text, want) || strings.Contains(text, "zmq4")) {
				t.Errorf("%s, the first %s: %v", how, last, err)
			}
			if st, err := os.Stat(count); err != nil || st.Size() != starts {
				t.Errorf("%s, the first %s: %v, %d starts", how, last, err, st.Size())
			}
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
