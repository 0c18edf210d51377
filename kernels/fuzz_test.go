package kernels

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"demesne/runner/files"
)

type stream struct{ io.Reader }

func (stream) Write(b []byte) (int, error) { return len(b), nil }
func (stream) Close() error                { return nil }

// FuzzBounded checks that no header of a frame or message above the bounds passes, and that all other bytes do, in any
// pieces.
func FuzzBounded(f *testing.F) {
	f.Add([]byte("\x00\x03abc\x01\x00\x00\x00"), uint8(1))
	f.Add(append([]byte{2, 0, 0, 0, 0, 0, 0, 0, 3}, "abc"...), uint8(7))
	f.Add([]byte{2, 0xff, 0, 0, 0, 0, 0, 0, 0}, uint8(64))
	f.Add(bytes.Repeat([]byte{1, 0}, 100), uint8(3))
	f.Fuzz(func(t *testing.T, sent []byte, piece uint8) {
		b := &bounded{ReadWriteCloser: stream{}, in: bufio.NewReaderSize(bytes.NewReader(sent), 16)}
		p, got := make([]byte, int(piece)+1), []byte(nil)
		var err error
		for n := 0; err == nil; got = append(got, p[:n]...) {
			n, err = b.Read(p)
		}
		if !bytes.HasPrefix(sent, got) {
			t.Fatalf("read %q of %q", got, sent)
		}
		ok, rest := wellBounded(sent)
		if ok == errors.Is(err, ErrTooLarge) {
			t.Fatalf("%q: %v, want bounded %v", sent, err, ok)
		}
		if ok && len(sent)-len(got) > rest {
			t.Fatalf("%d bytes of %d are missing", len(sent)-len(got), len(sent))
		}
	})
}

// wellBounded is a plain check of frames. rest is the length of an incomplete header at the end.
func wellBounded(b []byte) (ok bool, rest int) {
	frames, sum := 0, uint64(0)
	for len(b) >= 2 {
		size, n := uint64(b[1]), 2
		if b[0]&2 != 0 {
			if len(b) < 9 {
				return true, len(b)
			}
			size, n = 0, 9
			for _, c := range b[1:9] {
				size = size<<8 | uint64(c)
			}
		}
		if size > maxFrame {
			return false, 0
		}
		if frames, sum = frames+1, sum+size; frames > maxFrames || sum > maxMessage {
			return false, 0
		}
		if b[0]&1 == 0 {
			frames, sum = 0, 0
		}
		b = b[n:]
		b = b[min(uint64(len(b)), size):]
	}
	return true, len(b)
}

// FuzzParseFrames checks that frames without a right signature are never a message, and that a message survives.
func FuzzParseFrames(f *testing.F) {
	f.Add([]byte("id\x00<IDS|MSG>\x00\x00{}\x00{}\x00{}\x00{}"), "stream", `{"name":"stdout"}`)
	f.Add([]byte("<IDS|MSG>\x00sig\x00{\"msg_id\":\"1\"}\x00{}\x00{}\x00{}\x00raw"), "error", `[]`)
	f.Fuzz(func(t *testing.T, raw []byte, typ, content string) {
		if m, err := parseFrames(bytes.Split(raw, []byte{0}), []byte("key")); err == nil {
			t.Fatalf("forged %+v", m)
		}
		if m, err := parseFrames(bytes.Split(raw, []byte{0}), nil); err == nil && !json.Valid(m.Content) {
			t.Fatalf("content %q", m.Content)
		}
		if !json.Valid([]byte(content)) {
			return
		}
		m, err := newMessage("session", typ, json.RawMessage(content))
		if err != nil {
			t.Fatal(err)
		}
		m.Parent.ID = typ
		sent, err := m.frames([]byte("key"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseFrames(append([][]byte{[]byte("route")}, sent...), []byte("key"))
		if err != nil || got.Header.ID != m.Header.ID || utf8.ValidString(typ) && (got.Header.Type != typ || got.Parent.ID != typ) {
			t.Fatalf("%+v became %+v, %v", m, got, err)
		}
		sent[5] = append(sent[5], ' ')
		if _, err := parseFrames(sent, []byte("key")); err == nil {
			t.Fatal("changed content has the signature")
		}
	})
}

// FuzzLines sends any bytes as messages and as outputs of a kernel. Every message arrives or ends the channel, the outputs
// are those that were sent but for marks, and the channel ends.
func FuzzLines(f *testing.F) {
	message := func(typ string, mark string) string {
		return `{"header":{"msg_type":"` + typ + `"},"parent_header":{"msg_id":"1"},"metadata":` + mark + `,"content":{}}` + "\n"
	}
	f.Add([]byte(message("status", `{"mark":1,"streams":1}`)+message("status", `{"mark":2,"streams":3}`)), []byte("a\x00\x01key\x0200000001b\x00\x01key\x0200000002"))
	f.Add([]byte(message("status", `{"mark":-1}`)+"null\n5\n"), []byte("\x00\x01ke\xc3\xa9\xe2\x82"))
	f.Add([]byte("{}\n{}"), []byte("\x00\x01key\x02zzzzzzzz"))
	f.Fuzz(func(t *testing.T, answers, output []byte) {
		r1, w1, _ := os.Pipe()
		r2, w2, _ := os.Pipe()
		r3, w3, _ := os.Pipe()
		w3.Close()
		_, requests, _ := os.Pipe()
		go func() { w1.Write(answers); w1.Close() }()
		go func() { w2.Write(output); w2.Close() }()
		said := 0
		c := newLines(requests, r1, mark("key"), [2]*os.File{r2, r3}, func(b []byte) { said += len(b) }, time.Millisecond)
		var err error
		for n := 0; err == nil; n++ {
			if _, err = c.Receive(); n > len(answers)+len(output)+1 {
				t.Fatal("the channel does not end")
			}
		}
		c.Close()
		r2.Close()
		r3.Close()
		if !errors.Is(err, io.EOF) && !errors.Is(err, errMessage) {
			t.Fatal(err)
		}
	})
}

// FuzzHold checks that marks are found in outputs in any pieces, and that all other bytes are text.
func FuzzHold(f *testing.F) {
	f.Add([]byte("a\x00\x01k\x0200000001b\xc3\xa9"), uint8(1))
	f.Add([]byte("\x00\x01k\x02zzzzzzzz\x00\x01k"), uint8(3))
	f.Fuzz(func(t *testing.T, all []byte, piece uint8) {
		c := &lines{mark: mark("k")}
		var text, rest []byte
		for left := all; len(left) > 0; {
			n := min(len(left), int(piece)+1)
			rest, left = append(rest, left[:n]...), left[n:]
			for {
				before, _, after, found := c.cut(rest)
				if !found {
					break
				}
				text, rest = append(text, before...), after
			}
			hold := c.hold(rest)
			if hold > len(c.mark)+markDigits {
				t.Fatalf("%d bytes are held", hold)
			}
			text = append(text, rest[:len(rest)-hold]...)
			rest = append([]byte(nil), rest[len(rest)-hold:]...)
		}
		want := []byte(nil)
		for left := all; ; {
			before, _, after, found := c.cut(left)
			want = append(want, before...)
			if !found {
				break
			}
			left = after
		}
		if got := append(text, rest...); !bytes.Equal(got, want) {
			t.Fatalf("%q in pieces of %d: %q, want %q", all, piece+1, got, want)
		}
	})
}

// FuzzSpec checks that what a sandbox has as a kernelspec becomes a command that can be executed, or nothing.
func FuzzSpec(f *testing.F) {
	f.Add("/usr/share/jupyter/kernels/python3/kernel.json", []byte(`{"argv":["python3","-f","{connection_file}"],"display_name":"P\u001b[3","language":"python","env":{"A":"${B}"}}`))
	f.Add("/x/kernels/../kernel.json", []byte(`{"argv":[""]}`))
	f.Add("/x/kernels/A b/kernel.json", []byte(`{"argv":["\u0000"],"env":{"=":""}}`))
	f.Add("/x/kernels/a/kernel.json", []byte(`[[[[[[`))
	f.Fuzz(func(t *testing.T, path string, content []byte) {
		r := &Root{Programs: map[string]string{}}
		r.add(files.File{Path: path, Content: content, Executable: true}, []string{"python3"})
		for _, s := range r.Specs {
			argv, env := s.command("/tmp/kernel.json")
			if argv[0] == "" || len(argv) > maxArgv || len(env) > maxArgv || !specName.Get().MatchString(s.Name) {
				t.Fatalf("%+v", s)
			}
			if all := strings.Join(append(argv, env...), ""); strings.ContainsRune(all, 0) {
				t.Fatalf("%q", all)
			}
			if len(s.DisplayName) > 4*maxLabel || strings.ContainsAny(s.DisplayName+s.Language, "\x00\x1b\n") {
				t.Fatalf("%q %q", s.DisplayName, s.Language)
			}
			if found, ok := r.Spec(s.Name, ""); !ok || found.Name != s.Name {
				t.Fatalf("%q is not found", s.Name)
			}
		}
	})
}

// FuzzOutputs sends any contents as output messages. What a result keeps is within its bounds, and can be read.
func FuzzOutputs(f *testing.F) {
	f.Add("display_data", []byte(`{"data":{"image/png":"aGk=","text/plain":["a","b"]},"transient":{"display_id":"1"}}`), "image/png")
	f.Add("update_display_data", []byte(`{"data":{"a":{}},"transient":{"display_id":"1"}}`), "a")
	f.Add("error", []byte(`{"ename":"\ud800","traceback":[""]}`), "")
	f.Add("clear_output", []byte(`{"wait":true}`), "")
	f.Add("stream", []byte(`{"name":"stderr","text":"x"}`), "")
	f.Fuzz(func(t *testing.T, typ string, content []byte, mime string) {
		c := newCollector(nil)
		for _, typ := range []string{typ, "display_data", "update_display_data", "execute_result", "stream", "error", typ, "clear_output", typ} {
			c.take(&Message{Header: Header{Type: typ}, Content: content})
		}
		if len(c.result.Displays) > MaxDisplays || c.size > maxBundles || c.size < 0 {
			t.Fatalf("%d displays, %d bytes", len(c.result.Displays), c.size)
		}
		for _, b := range append(c.result.Displays, c.result.Value) {
			if s, ok := b.Text(mime); ok && !utf8.ValidString(s) {
				t.Fatalf("text %q", s)
			}
			b.Bytes(mime)
			if _, err := json.Marshal(b); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestSlowOutputs checks that a message waits for the outputs before it as long as these move.
func TestSlowOutputs(t *testing.T) {
	answers, answer, _ := os.Pipe()
	outputs, output, _ := os.Pipe()
	_, requests, _ := os.Pipe()
	const still, pieces = 2 * time.Second, 6
	c := newLines(requests, answers, mark("key"), [2]*os.File{outputs, nil}, func([]byte) {}, still)
	defer c.Close()
	say := func(typ, metadata string) {
		fmt.Fprintf(answer, `{"header":{"msg_type":%q},"parent_header":{"msg_id":"1"},"metadata":%s,"content":{}}`+"\n", typ, metadata)
	}
	say("status", `{}`)
	said := ""
	for n := 0; !strings.HasSuffix(said, "execute_reply "); n++ {
		m, err := c.Receive()
		if err != nil {
			t.Fatal(err)
		}
		said += m.Header.Type + " "
		switch n {
		case 0:
			say("execute_reply", `{"mark":1,"streams":1}`)
		case pieces:
			fmt.Fprintf(output, "%s%08x", mark("key"), 1)
			continue
		}
		time.Sleep(still / 5) // what is tested: pieces that come slowly, but in time
		output.WriteString("piece\n")
	}
	if said != "status "+strings.Repeat("stream ", pieces)+"execute_reply " {
		t.Errorf("%s", said)
	}
}
