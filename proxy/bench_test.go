package proxy

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"

	"github.com/miekg/dns"
)

// source serves an endless stream of zeros.
func source(b *testing.B, at string) {
	l, err := net.Listen("tcp", at)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(c, zeros{}); c.Close() }()
		}
	}()
}

// stream reads 1 MiB an iteration.
func stream(b *testing.B, c net.Conn) {
	buf := make([]byte, 256<<10)
	b.SetBytes(1 << 20)
	for b.Loop() {
		for left := 1 << 20; left > 0; {
			n, err := c.Read(buf[:min(left, len(buf))])
			if err != nil {
				b.Fatal(err)
			}
			left -= n
		}
	}
}

func BenchmarkStreamDirect(b *testing.B) {
	source(b, "8.0.0.2:7")
	c, err := net.Dial("tcp", "8.0.0.2:7")
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	stream(b, c)
}

func BenchmarkStreamConnect(b *testing.B) {
	source(b, "8.0.0.2:7")
	r := newRig(b, Config{Policy: allow(b, "good.test:*")}, "good.test")
	c, _, _ := r.connect("good.test:7")
	stream(b, c)
}

func BenchmarkStreamNamed(b *testing.B) {
	source(b, "8.0.0.2:7")
	r := newRig(b, Config{Policy: allow(b, "good.test:*")}, "good.test")
	stream(b, r.named("good.test", 7))
}

// pingPong sends a byte and waits for it, on one connection.
func pingPong(b *testing.B, c net.Conn) {
	buf := make([]byte, 1)
	for b.Loop() {
		c.Write(buf)
		if _, err := io.ReadFull(c, buf); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRequestDirect(b *testing.B) {
	echo(b, "8.0.0.2:7")
	c, err := net.Dial("tcp", "8.0.0.2:7")
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	pingPong(b, c)
}

func BenchmarkRequestConnect(b *testing.B) {
	echo(b, "8.0.0.2:7")
	r := newRig(b, Config{Policy: allow(b, "good.test:*")}, "good.test")
	c, _, _ := r.connect("good.test:7")
	pingPong(b, c)
}

// BenchmarkTunnels opens and closes one tunnel an iteration, by CONNECT.
func BenchmarkTunnels(b *testing.B) {
	echo(b, "8.0.0.2:7")
	r := newRig(b, Config{Policy: allow(b, "good.test:*")}, "good.test")
	b.RunParallel(func(pb *testing.PB) {
		buf := make([]byte, 256)
		for pb.Next() {
			c, err := net.Dial("tcp", r.addr)
			if err != nil {
				b.Error(err)
				return
			}
			fmt.Fprint(c, "CONNECT good.test:7 HTTP/1.1\r\nHost: x\r\n\r\n")
			if _, err := c.Read(buf); err != nil {
				b.Error(err)
			}
			c.Close()
		}
	})
}

func BenchmarkDNS(b *testing.B) {
	r := newRig(b, Config{Policy: allow(b, "good.test")})
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go r.proxy.ServeDNS(pc)
	c, err := net.Dial("udp", pc.LocalAddr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	m := new(dns.Msg)
	m.SetQuestion("good.test.", dns.TypeA)
	q, _ := m.Pack()
	buf := make([]byte, 512)
	for b.Loop() {
		c.Write(q)
		if _, err := c.Read(buf); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkIdle reports the memory of a proxy that listens and has no connections.
func BenchmarkIdle(b *testing.B) {
	for b.Loop() {
		var before, after runtime.MemStats
		const n = 200
		runtime.GC()
		runtime.ReadMemStats(&before)
		for range n {
			r := newRig(b, Config{Policy: allow(b, "good.test")})
			r.serve("127.0.0.1:0", r.proxy.ServeNamed)
			pc, err := net.ListenPacket("udp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			go r.proxy.ServeDNS(pc)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc+after.StackInuse-before.HeapAlloc-before.StackInuse)/n, "bytes/proxy")
	}
}
