package integration

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// modernCall returns a request in protocol 2026-07-28, without a progress token.
func modernCall(id, method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":%q,"params":{%s,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
		`"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`+"\n", id, method, params)
}

func modernScript(command string) string {
	return modernCall("call", "tools/call", fmt.Sprintf(`"name":"sandbox_script","arguments":{"command":%q}`, command))
}

// piped starts a server with pipes on stdin and stdout.
func (b *box) piped() (cmd *exec.Cmd, in io.WriteCloser, out io.ReadCloser) {
	b.Helper()
	b.keepsJobs()
	cmd = b.command("demesne-mcp")
	in, err := cmd.StdinPipe()
	if err == nil {
		out, err = cmd.StdoutPipe()
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if cmd.Process.Kill() == nil { // else descendants has reaped it, and a second Wait would not return
			cmd.Wait()
		}
	})
	return cmd, in, out
}

// endsSoon checks that a server ends by itself.
func endsSoon(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	kill := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer kill.Stop()
	if err := cmd.Wait(); err != nil && !errors.Is(err, syscall.ECHILD) { // descendants has reaped it: it has ended
		t.Errorf("end of the server: %v", err)
	}
}

// TestMCPClientGone checks that a disconnected client of protocol 2026-07-28 leaves no command and no server, although
// it had a subscription open and its call writes nothing before its result.
func TestMCPClientGone(t *testing.T) {
	b := newBox(t)
	cmd, in, out := b.piped()
	io.WriteString(in, modernCall("listen", "subscriptions/listen", `"notifications":{"toolsListChanged":true}`)+modernScript("sleep 4444"))
	eventually(t, "the command to start", func() bool { return sleepers("4444") == 1 })
	in.Close()
	out.Close()
	eventually(t, "the command to end", func() bool { return sleepers("4444") == 0 })
	endsSoon(t, cmd)
}

// TestMCPModernHTTP checks that a call of protocol 2026-07-28 over HTTP is answered, and that its command ends with its
// connection.
func TestMCPModernHTTP(t *testing.T) {
	b := newBox(t)
	addr, _ := b.web("--http", "127.0.0.1:0")
	do := func(ctx context.Context, command string) (string, error) {
		r, err := http.NewRequestWithContext(ctx, "POST", "http://"+addr+"/mcp", strings.NewReader(modernScript(command)))
		if err != nil {
			return "", err
		}
		for _, h := range []string{"Content-Type: application/json", "Accept: application/json, text/event-stream", "Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: sandbox_script"} {
			name, value, _ := strings.Cut(h, ": ")
			r.Header.Set(name, value)
		}
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			return "", err
		}
		defer a.Body.Close()
		text, err := io.ReadAll(a.Body)
		return string(text), err
	}
	if text, err := do(t.Context(), "echo over http"); err != nil || !strings.Contains(text, `over http\n`) {
		t.Errorf("%s, %v", text, err)
	}
	ctx, leave := context.WithCancel(t.Context())
	go do(ctx, "sleep 4445")
	eventually(t, "the command to start", func() bool { return sleepers("4445") == 1 })
	leave()
	eventually(t, "the command to end", func() bool { return sleepers("4445") == 0 })
}

// TestMCPUnread checks that a client that sends requests and reads no answers does not fill the server's memory. Once it
// reads, all of them are answered.
func TestMCPUnread(t *testing.T) {
	b := newBox(t)
	cmd, in, out := b.piped()
	const pings = 20_000
	go func() {
		w := bufio.NewWriter(in)
		io.WriteString(w, greeting)
		for i := range pings {
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%d,"method":"ping"}`+"\n", i+10)
		}
		w.Flush()
		in.Close()
	}()
	// The server stops reading: both pipes stay full.
	full := 0
	eventually(t, "the server to stop reading", func() bool {
		full++
		for _, pipe := range []any{in, out} {
			if n, _ := unix.IoctlGetInt(int(pipe.(*os.File).Fd()), unix.TIOCINQ); n < 60000 {
				full = 0
			}
		}
		return full > 10
	})
	if kb := statusKB(t, cmd.Process.Pid, "VmHWM"); kb > 64<<10 {
		t.Errorf("the server took %d kB", kb)
	}
	answers := 0
	for lines := bufio.NewScanner(out); lines.Scan(); answers++ {
	}
	if answers != pings+1 {
		t.Errorf("%d answers", answers)
	}
	endsSoon(t, cmd)
}
