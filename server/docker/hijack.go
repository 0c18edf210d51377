package docker

import (
	"context"
	"io"
	"net"
	"net/http"
	"time"
)

// stalled is how long a client of an attached connection may take none of the output that waits for it. Then the connection
// ends, and the command goes on.
const stalled = time.Minute

// attachment is what a client attaches to.
type attachment struct {
	in, out, errs bool
	logs          bool // what was written before, too
	stream        bool // what is written from now on
}

// hijack takes the connection of a request over from HTTP.
func hijack(w http.ResponseWriter, r *http.Request, tty bool) (net.Conn, io.Reader, error) {
	kind := "application/vnd.docker.multiplexed-stream"
	if tty {
		kind = "application/vnd.docker.raw-stream"
	}
	c, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, nil, err
	}
	c.SetDeadline(time.Time{})
	head := "HTTP/1.1 200 OK\r\nContent-Type: " + kind + "\r\n\r\n"
	if r.Header.Get("Upgrade") != "" {
		head = "HTTP/1.1 101 UPGRADED\r\nContent-Type: " + kind + "\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
	}
	if _, err := io.WriteString(c, head); err != nil {
		c.Close()
		return nil, nil, err
	}
	return c, buf, nil
}

// attach serves an attached connection until the command has ended, or the client leaves. begin is called when output is
// received; it may be nil.
func attach(ctx context.Context, w http.ResponseWriter, r *http.Request, p *process, a attachment, begin func()) error {
	read := p.out.reader(a.logs, true)
	defer read.stop()
	c, in, err := hijack(w, r, p.tty)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // package http ends ctx at the end of the client's input
	defer cancel()
	defer context.AfterFunc(ctx, read.stop)()
	if begin != nil {
		begin() // an error is among the output, because the answer has begun
	}
	go func() {
		defer func() {
			if !a.out && !a.errs {
				cancel()
			}
		}()
		if p.stdin && a.in {
			buf := make([]byte, 32<<10)
			for {
				n, err := in.Read(buf)
				if n > 0 && p.write(ctx, buf[:n]) != nil {
					return
				}
				if err == io.EOF {
					p.closeInput(ctx)
					return
				}
				if err != nil {
					cancel()
					return
				}
			}
		}
	}()
	send(c, read, p.tty, a, a.stream)
	return nil
}

// send writes frames to a client until there are no more, or the client takes none.
func send(c net.Conn, read *reader, tty bool, a attachment, wait bool) {
	for {
		f, ok := read.take(wait)
		if !ok {
			return
		}
		if f.stream == stdout && !a.out || f.stream == stderr && !a.errs {
			continue
		}
		c.SetWriteDeadline(time.Now().Add(stalled))
		var err error
		if tty {
			_, err = c.Write(f.data)
		} else {
			err = framed(c, f.stream, f.data)
		}
		if err != nil {
			return
		}
	}
}

// attachmentOf reads the parameters of attach.
func attachmentOf(r *http.Request) attachment {
	return attachment{in: isOn(r, "stdin"), out: isOn(r, "stdout"), errs: isOn(r, "stderr"), logs: isOn(r, "logs"), stream: isOn(r, "stream")}
}

// flushed writes at once.
type flushed struct{ w http.ResponseWriter }

func (f flushed) Write(b []byte) (int, error) {
	http.NewResponseController(f.w).SetWriteDeadline(time.Now().Add(stalled))
	n, err := f.w.Write(b)
	http.NewResponseController(f.w).Flush()
	return n, err
}
