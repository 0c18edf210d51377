package kernels_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"demesne/kernels"
	"demesne/runner"
)

// hostileEnv names the behaviour of this test binary as a kernel.
const hostileEnv = "KERNELS_HOSTILE"

func TestMain(m *testing.M) {
	if how := os.Getenv(hostileEnv); how != "" {
		hostile(how)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// fake is the kernel's side of the channel of demesne's own kernels.
type fake struct {
	requests *json.Decoder
	answers  *os.File
	key      string
	header   json.RawMessage // of the current request
	marks    int
}

// next reads the next request and returns its type.
func (f *fake) next() string {
	var m struct {
		Header  json.RawMessage `json:"header"`
		Content struct {
			Code string `json:"code"`
		} `json:"content"`
	}
	if f.requests.Decode(&m) != nil {
		os.Exit(0)
	}
	f.header = m.Header
	var h kernels.Header
	json.Unmarshal(m.Header, &h)
	return h.Type
}

func (f *fake) send(typ, content string) { f.sendAs(f.header, typ, content) }

func (f *fake) sendAs(parent json.RawMessage, typ, content string) {
	fmt.Fprintf(f.answers, `{"header":{"msg_id":"1","msg_type":%q},"parent_header":%s,"metadata":{},"content":%s}`+"\n", typ, parent, content)
}

// greet answers until code comes.
func (f *fake) greet() {
	for f.next() != "execute_request" {
		f.send("status", `{"execution_state":"busy"}`)
		f.send("kernel_info_reply", `{"status":"ok","protocol_version":"5.4"}`)
		f.send("status", `{"execution_state":"idle"}`)
	}
	f.place("status", `{"execution_state":"busy"}`)
}

// place sends a message that comes between the outputs before and after it.
func (f *fake) place(typ, content string) {
	f.marks++
	for _, to := range []*os.File{os.Stdout, os.Stderr} {
		fmt.Fprintf(to, "\x00\x01%s\x02%08x", f.key, f.marks)
	}
	fmt.Fprintf(f.answers, `{"header":{"msg_id":"1","msg_type":%q},"parent_header":%s,"metadata":{"mark":%d,"streams":3},"content":%s}`+"\n", typ, f.header, f.marks, content)
}

func (f *fake) end() {
	f.place("execute_reply", `{"status":"ok","execution_count":1}`)
	f.send("status", `{"execution_state":"idle"}`)
}

// forever writes b again and again, until the client has left.
func forever(to *os.File, b []byte) {
	for {
		if _, err := to.Write(b); err != nil {
			os.Exit(0)
		}
	}
}

// hostile is a kernel that does not behave.
func hostile(how string) {
	f := &fake{requests: json.NewDecoder(os.NewFile(3, "requests")), answers: os.NewFile(4, "answers"), key: os.Args[len(os.Args)-1]}
	text := strings.Repeat("x", 1<<20)
	megabyte := []byte(text)
	switch how {
	case "dies at once":
		fmt.Fprintln(os.Stderr, "first\nno such module\x1b[31m")
		os.Exit(3)
	case "dies while greeting":
		f.next()
		os.Exit(3)
	case "says nothing":
		hang()
	case "greets in garbage":
		f.next()
		fmt.Fprintln(f.answers, "garbage")
		hang()
	case "greets without end":
		forever(f.answers, megabyte)
	case "greets in a flood of messages":
		f.next()
		for {
			f.send("status", `{"execution_state":"starting"}`)
		}
	}
	f.greet()
	switch how {
	case "dies while executing":
		fmt.Print("partial")
		os.Exit(3)
	case "dies between reply and idle":
		f.send("execute_reply", `{"status":"ok","execution_count":1}`)
		os.Exit(3)
	case "is killed":
		p, _ := os.FindProcess(os.Getpid())
		p.Kill()
	case "outputs after its reply":
		f.place("execute_reply", `{"status":"ok","execution_count":1}`)
		time.Sleep(1500 * time.Millisecond) // as on a machine that is busy
		f.send("stream", `{"name":"stdout","text":"late"}`)
		f.send("status", `{"execution_state":"idle"}`)
		hang()
	case "replies without idle":
		f.send("execute_reply", `{"status":"ok","execution_count":1}`)
		hang()
	case "idles without reply":
		f.send("status", `{"execution_state":"idle"}`)
		hang()
	case "sends a line without end":
		forever(f.answers, megabyte)
	case "sends garbage":
		fmt.Fprintln(f.answers, "\x00\xff{")
		hang()
	case "sends other types":
		for _, s := range []string{`5`, `null`, `"text"`, `[]`, `{"name":5,"text":[]}`, `{"data":[]}`, `{"data":{"text/plain":{"a":1}}}`, `{"execution_state":{}}`, `{"traceback":"x"}`} {
			for _, typ := range []string{"stream", "display_data", "update_display_data", "execute_result", "error", "clear_output", "status", "", "execute_input", "comm_open"} {
				f.send(typ, s)
			}
		}
		fmt.Fprintln(f.answers, `null`)
		fmt.Fprintln(f.answers, `{}`)
		fmt.Fprintln(f.answers, `{"header":null,"parent_header":null,"metadata":{"mark":-1,"streams":"x"},"content":null}`)
		f.place("comm_msg", "{}")
		fmt.Print("still")
		f.end()
	case "forges parents":
		for _, id := range []string{"", "guess", "1"} {
			parent, _ := json.Marshal(kernels.Header{ID: id})
			f.sendAs(parent, "stream", `{"name":"stdout","text":"forged"}`)
			f.sendAs(parent, "execute_reply", `{"status":"error","ename":"forged"}`)
			f.sendAs(parent, "status", `{"execution_state":"idle"}`)
		}
		f.end()
	case "forges marks":
		for n := range 20 {
			fmt.Printf("\x00\x01%s\x02%08xa", f.key, 1<<20+n)
		}
		fmt.Printf("\x00\x01%s\x02zzzzzzzzb\x00\x01%s", f.key, f.key)
		fmt.Fprintf(f.answers, `{"header":{"msg_type":"x"},"metadata":{"mark":18446744073709551615,"streams":3},"content":{}}`+"\n")
		f.end()
	case "writes without end":
		go forever(os.Stderr, megabyte)
		forever(os.Stdout, megabyte)
	case "sends displays without end":
		for n := range 400 {
			f.send("display_data", `{"data":{"text/plain":"`+text[:200<<10]+`"},"transient":{"display_id":"`+strconv.Itoa(n)+`"}}`)
		}
		f.end()
	case "updates without end":
		f.send("display_data", `{"data":{"text/plain":"1"},"transient":{"display_id":"1"}}`)
		for range 400 {
			f.send("update_display_data", `{"data":{"text/plain":"`+text[:200<<10]+`"},"transient":{"display_id":"1"}}`)
		}
		f.end()
	case "raises without end":
		for range 10 {
			f.send("error", strings.ReplaceAll(`{"ename":"M","evalue":"M","traceback":["M","M"]}`, "M", text))
		}
		f.end()
	case "is interrupted and aborts":
		interrupts := make(chan os.Signal, 10)
		signal.Notify(interrupts, os.Interrupt)
		for {
			fmt.Print("ran.")
			<-interrupts
			f.place("execute_reply", `{"status":"aborted","execution_count":1}`)
			f.send("status", `{"execution_state":"idle"}`)
			f.next()
			f.place("status", `{"execution_state":"busy"}`)
		}
	case "refuses at first":
		f.place("execute_reply", `{"status":"aborted"}`)
		f.send("status", `{"execution_state":"idle"}`)
		f.next()
		f.place("status", `{"execution_state":"busy"}`)
		fmt.Print("ran.")
		f.end()
	case "ignores interrupts":
		ignoreInterrupts()
		hang()
	case "leaves a process":
		c := exec.Command("sleep", "1000")
		c.Stdout, c.Stderr, c.ExtraFiles = os.Stdout, os.Stderr, []*os.File{os.NewFile(3, ""), f.answers}
		c.Start()
		fmt.Print(c.Process.Pid)
		os.Exit(3)
	}
	hang()
}

// TestHostileStart meets kernels that do not start as they should. Each attempt ends in an error, with no goroutine and no
// process left.
func TestHostileStart(t *testing.T) {
	for how, want := range map[string]string{
		"dies at once":                  "start kernel: the kernel has ended",
		"dies while greeting":           "start kernel: the kernel has ended",
		"says nothing":                  "start kernel: context deadline exceeded",
		"greets in garbage":             "start kernel: the kernel has ended: not a message of Jupyter's protocol",
		"greets without end":            "start kernel: the kernel has ended: receive from kernel: a kernel's message is too large",
		"greets in a flood of messages": "start kernel: context deadline exceeded",
	} {
		t.Run(how, func(t *testing.T) {
			noneLeft(t)
			limit := 5 * time.Minute
			if strings.HasSuffix(want, "exceeded") {
				limit = time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			_, err := startHostile(ctx, t, how)
			if err == nil || !strings.HasPrefix(err.Error(), want) || how == "dies at once" && !strings.HasSuffix(err.Error(), ": no such module?[31m") {
				t.Errorf("error %v, want %s", err, want)
			}
		})
	}
}

func startHostile(ctx context.Context, t *testing.T, how string) (*kernels.Running, error) {
	return kernels.StartDriver(ctx, local{t}, runner.Command{Argv: []string{os.Args[0]}, Env: []string{hostileEnv + "=" + how}})
}

// noneLeft checks at the test's end that it left no goroutine, and that it held no more memory than a result may.
func noneLeft(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > before && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		if n := runtime.NumGoroutine(); n > before {
			b := make([]byte, 1<<16)
			t.Errorf("%d goroutines, %d before:\n%s", n, before, b[:runtime.Stack(b, true)])
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if m.HeapAlloc > 100<<20 {
			t.Errorf("%d MiB of memory are left", m.HeapAlloc>>20)
		}
	})
}

// TestHostileExecution meets kernels that behave until they execute code.
func TestHostileExecution(t *testing.T) {
	forged := "" // nothing of a forged message is in the result
	for _, c := range []struct {
		how   string
		err   error
		check func(*kernels.Result) bool
	}{
		{"dies while executing", kernels.ErrDead, func(r *kernels.Result) bool { return tell(r).out == "partial" }},
		{"dies between reply and idle", nil, func(r *kernels.Result) bool { return r.Count == 1 }},
		{"is killed", kernels.ErrDead, nil},
		{"outputs after its reply", nil, func(r *kernels.Result) bool { return tell(r).out == "late" }},
		{"replies without idle", nil, func(r *kernels.Result) bool { return r.Count == 1 && !r.TimedOut }},
		{"idles without reply", kernels.ErrDead, nil},
		{"sends a line without end", kernels.ErrTooLarge, nil},
		{"sends garbage", kernels.ErrDead, nil},
		{"sends other types", nil, func(r *kernels.Result) bool { return strings.HasSuffix(tell(r).out, "still") }},
		{"forges parents", nil, func(r *kernels.Result) bool { return tell(r) == told{out: forged} && r.Count == 1 }},
		{"forges marks", nil, func(r *kernels.Result) bool { return !strings.Contains(tell(r).out, "\x02") }},
		{"writes without end", kernels.ErrDead, func(r *kernels.Result) bool {
			return r.TimedOut && r.Stdout.Bytes > 1<<20 && r.Stderr.Bytes > 1<<20 && len(r.Stdout.End(1<<30)) <= 2*kernels.MaxStream
		}},
		{"sends displays without end", nil, func(r *kernels.Result) bool { return r.Dropped >= 200 && len(r.Displays) <= kernels.MaxDisplays }},
		{"updates without end", nil, func(r *kernels.Result) bool { return len(r.Displays) == 1 }},
		{"raises without end", nil, func(r *kernels.Result) bool { return len(r.Error.Message) <= 64<<10 && len(r.Error.Traceback) == 0 }},
		{"is interrupted and aborts", nil, func(r *kernels.Result) bool { return tell(r).out == "ran." && r.TimedOut }},
		{"refuses at first", nil, func(r *kernels.Result) bool { return tell(r).out == "ran." && !r.TimedOut && r.Count == 1 }},
		{"ignores interrupts", kernels.ErrStuck, func(r *kernels.Result) bool { return r.TimedOut }},
		{"leaves a process", kernels.ErrDead, func(r *kernels.Result) bool {
			pid, err := strconv.Atoi(tell(r).out)
			p, _ := os.FindProcess(pid)
			return err == nil && p.Kill() == nil // in a sandbox, its end ends this process
		}},
	} {
		t.Run(c.how, func(t *testing.T) {
			noneLeft(t)
			k, err := startHostile(t.Context(), t, c.how)
			if err != nil {
				t.Fatal(err)
			}
			limit := 5 * time.Minute
			if strings.HasPrefix(c.how, "i") || strings.HasPrefix(c.how, "writes") {
				limit = time.Second
			}
			r, err := k.Execute(t.Context(), kernels.Execution{Code: "1", Timeout: limit})
			if !errors.Is(err, c.err) && (err != nil || c.err != nil) {
				t.Errorf("error %v, want %v", err, c.err)
			}
			if c.check != nil && !c.check(r) {
				t.Errorf("result: count %d, timed out %v, dropped %d, error %v, %.200q", r.Count, r.TimedOut, r.Dropped, r.Error, tell(r))
			}
			k.Kill()
			if _, err := k.Execute(t.Context(), kernels.Execution{Code: "1"}); !errors.Is(err, kernels.ErrDead) {
				t.Errorf("after its end: %v", err)
			}
		})
	}
}

// TestHostileZMTP meets peers of a ZeroMQ socket that announce too much, or send invalid messages.
func TestHostileZMTP(t *testing.T) {
	long := func(flags byte, size uint64) []byte { return binary.BigEndian.AppendUint64([]byte{flags}, size) }
	for name, c := range map[string]struct {
		sent []byte
		err  string
	}{
		"a frame of 2^63 bytes":  {long(2, 1<<63), "too large"},
		"a frame of 65 MiB":      {long(2, 65<<20), "too large"},
		"frames without end":     {bytes.Repeat([]byte{1, 0}, 100), "too large"},
		"a message of 3 frames":  {append(bytes.Repeat([]byte{1, 0}, 2), 0, 0), "not a message"},
		"a wrong signature":      {frames("<IDS|MSG>", strings.Repeat("0", 64), "{}", "{}", "{}", "{}"), "wrong signature"},
		"no signature":           {frames("<IDS|MSG>", "", "{}", "{}", "{}", "{}"), "wrong signature"},
		"a frame that is cut":    {long(2, 100), "EOF"},
		"a header that is cut":   {[]byte{2, 0}, "EOF"},
		"a message without text": {nil, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			noneLeft(t)
			ours, theirs := pair(t)
			go func() {
				defer theirs.Close()
				if greetZMTP(theirs) == nil {
					theirs.Write(c.sent)
				}
			}()
			ch, err := kernels.Dial(ours, kernels.Dealer, []byte("key"))
			if err != nil {
				t.Fatal(err)
			}
			defer ch.Close()
			if m, err := ch.Receive(); err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("received %v, %v; want %s", m, err, c.err)
			}
		})
	}
	t.Run("garbage in place of a greeting", func(t *testing.T) {
		noneLeft(t)
		ours, theirs := pair(t)
		go func() {
			theirs.Write(bytes.Repeat([]byte("HTTP/1.1 400\r\n"), 100))
			theirs.Close()
		}()
		if _, err := kernels.Dial(ours, kernels.Dealer, nil); err == nil {
			t.Error("garbage is a greeting")
		}
	})
}

// frames encodes a message of ZMTP with short frames.
func frames(texts ...string) (b []byte) {
	for i, s := range texts {
		more := byte(1)
		if i == len(texts)-1 {
			more = 0
		}
		b = append(b, more, byte(len(s)))
		b = append(b, s...)
	}
	return b
}

// greetZMTP does the handshake of ZMTP 3.0 as a ROUTER.
func greetZMTP(c io.ReadWriter) error {
	greeting := make([]byte, 64)
	copy(greeting, "\xff\x00\x00\x00\x00\x00\x00\x00\x00\x7f\x03\x00NULL")
	c.Write(greeting)
	if _, err := io.ReadFull(c, greeting); err != nil {
		return err
	}
	ready := "\x05READY\x0bSocket-Type\x00\x00\x00\x06ROUTER\x08Identity\x00\x00\x00\x00"
	c.Write(append([]byte{4, byte(len(ready))}, ready...))
	head := make([]byte, 2)
	if _, err := io.ReadFull(c, head); err != nil {
		return err
	}
	_, err := io.CopyN(io.Discard, c, int64(head[1]))
	return err
}

// hang does not return. The runtime would report select {} as a deadlock.
func hang() {
	for {
		time.Sleep(time.Hour)
	}
}
