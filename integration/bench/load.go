package main

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// client is the client side of the egress measurements. It is this program again, started as
//
//	bench load KIND VIA HOST:PORT N WORKERS
//
// In a sandbox, VIA is connect (through the proxy that the environment names) or name (a plain
// connect to the name, as by any program). Outside a sandbox, VIA is direct. The client prints its
// measurements as JSON. It uses blocking system calls, to cost less than the path it measures.
type client struct {
	via, to    string
	auth       string // proxy authorization header line, or ""
	at         unix.SockaddrInet4
	n, workers int
}

// loadTime bounds a load, because the process that started it may be gone.
const loadTime = 2 * time.Minute

// measured is the output of a client: the total time, and the time of each request or tunnel.
type measured struct {
	Elapsed time.Duration
	Each    []time.Duration
}

func load(args []string) error {
	if len(args) != 5 {
		return errors.New("usage: bench load KIND VIA HOST:PORT N WORKERS")
	}
	c := client{via: args[1], to: args[2]}
	var err1, err2 error
	c.n, err1 = strconv.Atoi(args[3])
	c.workers, err2 = strconv.Atoi(args[4])
	if err := errors.Join(err1, err2, c.resolve()); err != nil {
		return err
	}
	runtime.GOMAXPROCS(c.workers + 2) // a worker that blocks in the kernel keeps its P
	time.AfterFunc(loadTime, func() { fail(fmt.Errorf("load %s %s: not done after %v", args[0], c.via, loadTime)) })
	kind := map[string]func() (measured, error){"stream": c.stream, "request": c.request, "tunnel": c.tunnel, "dns": c.dns}[args[0]]
	if kind == nil {
		return fmt.Errorf("no such load: %q", args[0])
	}
	r, err := kind()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// resolve looks up the address to connect to, once and outside the measured time.
func (c *client) resolve() error {
	to := c.to
	if c.via == "connect" {
		u, err := url.Parse(os.Getenv("https_proxy"))
		if err != nil || u.Host == "" {
			return fmt.Errorf("find proxy: https_proxy is %q", os.Getenv("https_proxy"))
		}
		to = u.Host
		if password, has := u.User.Password(); has {
			c.auth = "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password)) + "\r\n"
		}
	}
	a, err := net.ResolveTCPAddr("tcp4", to)
	if err != nil {
		return err
	}
	c.at = unix.SockaddrInet4{Port: a.Port, Addr: [4]byte(a.IP.To4())}
	return nil
}

// conn is a blocking socket.
type conn int

func (c conn) Read(p []byte) (int, error) {
	n, err := unix.Read(int(c), p)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return max(n, 0), err
}

func (c conn) Write(p []byte) (int, error) { return unix.Write(int(c), p) }
func (c conn) Close() error                { return unix.Close(int(c)) }

// dial returns a connection to the server that is ready for use, with the CONNECT done if via is connect.
func (c *client) dial() (conn, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	s := conn(fd)
	if err := unix.Connect(fd, &c.at); err != nil {
		s.Close()
		return 0, fmt.Errorf("connect: %w", err)
	}
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	if c.via != "connect" {
		return s, nil
	}
	fmt.Fprintf(s, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", c.to, c.to, c.auth)
	var head [1024]byte
	for n := 0; ; {
		m, err := s.Read(head[n:])
		if err != nil {
			s.Close()
			return 0, fmt.Errorf("read answer of the proxy: %w", err)
		}
		if n += m; bytes.HasSuffix(head[:n], []byte("\r\n\r\n")) {
			if bytes.HasPrefix(head[:n], []byte("HTTP/1.1 200")) {
				return s, nil
			}
			s.Close()
			return 0, fmt.Errorf("connect: the proxy says %q", head[:n])
		}
	}
}

// stream reads n bytes on one connection per worker.
func (c *client) stream() (measured, error) {
	return c.together(func() ([]time.Duration, error) {
		s, err := c.dial()
		if err != nil {
			return nil, err
		}
		defer s.Close()
		if err := binary.Write(s, binary.BigEndian, uint64(c.n)); err != nil {
			return nil, err
		}
		buf := make([]byte, 256<<10)
		for left := c.n; left > 0; {
			n, err := s.Read(buf[:min(left, len(buf))])
			if err != nil {
				return nil, fmt.Errorf("read stream, %d bytes before its end: %w", left, err)
			}
			left -= n
		}
		return nil, nil
	})
}

// request sends 64 bytes and waits for 64, n times on one connection.
func (c *client) request() (measured, error) {
	return c.together(func() ([]time.Duration, error) {
		s, err := c.dial()
		if err != nil {
			return nil, err
		}
		defer s.Close()
		var buf [64]byte
		return repeat(c.n, func() error {
			if _, err := s.Write(buf[:]); err != nil {
				return err
			}
			_, err := io.ReadFull(s, buf[:])
			return err
		})
	})
}

// tunnel opens and closes n connections in each worker.
func (c *client) tunnel() (measured, error) {
	return c.together(func() ([]time.Duration, error) {
		return repeat(c.n, func() error {
			s, err := c.dial()
			if err != nil {
				return err
			}
			return s.Close()
		})
	})
}

// dns asks the sandbox's name server for the address of a name, n times.
func (c *client) dns() (measured, error) {
	host, _, err := net.SplitHostPort(c.to)
	if err != nil {
		return measured{}, err
	}
	raw, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		return measured{}, err
	}
	var server string
	if _, err := fmt.Sscanf(string(raw), "nameserver %s", &server); err != nil {
		return measured{}, fmt.Errorf("read resolv.conf: %w", err)
	}
	s, err := net.Dial("udp", net.JoinHostPort(server, "53"))
	if err != nil {
		return measured{}, err
	}
	defer s.Close()
	query, answer := question(host), make([]byte, 512)
	return c.together(func() ([]time.Duration, error) {
		return repeat(c.n, func() error {
			s.SetDeadline(time.Now().Add(5 * time.Second))
			s.Write(query)
			n, err := s.Read(answer)
			if err == nil && (n < 12 || answer[3]&15 != 0 || answer[7] == 0) {
				err = fmt.Errorf("no address of %q in %x", host, answer[:n])
			}
			return err
		})
	})
}

// question returns a DNS query for the IPv4 address of host.
func question(host string) []byte {
	q := []byte{0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for label := range bytes.SplitSeq([]byte(host), []byte(".")) {
		q = append(append(q, byte(len(label))), label...)
	}
	return append(q, 0, 0, 1, 0, 1)
}

func repeat(n int, do func() error) ([]time.Duration, error) {
	each := make([]time.Duration, n)
	for i := range each {
		start := time.Now()
		if err := do(); err != nil {
			return nil, err
		}
		each[i] = time.Since(start)
	}
	return each, nil
}

// together runs do in each worker and collects the results.
func (c *client) together(do func() ([]time.Duration, error)) (all measured, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	start := time.Now()
	for range c.workers {
		wg.Go(func() {
			each, werr := do()
			mu.Lock()
			defer mu.Unlock()
			all.Each, err = append(all.Each, each...), errors.Join(err, werr)
		})
	}
	wg.Wait()
	all.Elapsed = time.Since(start)
	return all, err
}
