package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"
)

// egress measures the cost of a sandbox's network, compared with the same program and the same servers on lo.
func egress(m *machine) error {
	for _, part := range []func(*machine) error{throughput, requests, tunnels, answers, networked, rival, idleNetworked} {
		if err := part(m); err != nil {
			return err
		}
	}
	return crowd(m, "100 networked at once", "--allow-domain", "good.test")
}

// load runs a load client, in a sandbox unless it connects directly.
func (m *machine) load(kind, via, to string, n, workers int) (measured, error) {
	argv := []string{"bench", "load", kind, via, to, strconv.Itoa(n), strconv.Itoa(workers)}
	switch via {
	case "minimal connect", "minimal name":
		argv = m.minimalLoad(argv)
	case "direct":
	case "relay":
		argv[0], argv[3] = m.bin+"/bench", "connect"
		argv = append([]string{find("env"), "https_proxy=http://" + relayServer}, argv...)
	case "srt":
		srt, err := m.srt()
		if err != nil {
			return measured{}, err
		}
		argv[0], argv[3] = m.bin+"/bench", "connect"
		argv = append(srt, argv...)
	default:
		argv[0] = "/in/bench"
		argv = append([]string{"demesne", "run", "--in", m.bin + "/bench", "--allow-domain", loadPorts, "--"}, argv...)
	}
	var r measured
	text, err := m.output(argv...)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, fmt.Errorf("read what %q measured: %w", argv, err)
	}
	return r, nil
}

// rates holds the rate of each round in GB/s, by way of connecting.
type rates map[string][]float64

// of returns the median rate of via.
func (r rates) of(via string) float64 {
	slices.Sort(r[via])
	return r[via][len(r[via])/2]
}

// throughput compares stream rates; the ways of connecting take turns.
func throughput(m *machine) error {
	for _, c := range []struct {
		name         string
		streams, n   int
		connect, own float64 // lower bounds; 0: no bound
	}{{"1 stream", 1, 1 << 30, 0.45, 0.4}, {"32 streams", 32, 32 << 20, 0.5, 0}} {
		got := rates{}
		for range 3 {
			for _, via := range []string{"direct", "connect", "name"} {
				r, err := m.load("stream", via, streamServer, c.n, c.streams)
				if err != nil {
					return err
				}
				got[via] = append(got[via], float64(c.n)*float64(c.streams)/1e9/r.Elapsed.Seconds())
			}
		}
		m.share(c.name+" through CONNECT", got.of("connect"), got.of("direct"), c.connect)
		m.share(c.name+" by name", got.of("name"), got.of("direct"), c.own)
	}
	return nil
}

// share reports got as a share of the direct rate, with a lower bound.
func (m *machine) share(name string, got, direct, want float64) {
	wanted := fmt.Sprintf(">= %.2f x", want)
	if want == 0 {
		wanted = "(no bound)"
	}
	r := got / direct
	m.limit(name+", against lo", r >= want, fmt.Sprintf("%.2f x (%.2f of %.2f GB/s)", r, got, direct), wanted)
}

// requests compares the time of one answer on a persistent connection. In each round it measures all ways shortly
// after each other, and takes each way's difference to direct. It reports the median difference: absolute times
// drift by more than the bound.
func requests(m *machine) error {
	times, over := map[string][]time.Duration{}, map[string][]time.Duration{}
	ways := []string{"direct", "relay", "connect", "name"}
	stop, err := m.startRelay(echoServer)
	if err != nil {
		return err
	}
	defer stop()
	for range 15 {
		var direct time.Duration
		for _, via := range ways {
			r, err := m.load("request", via, echoServer, 600, 1)
			if err != nil {
				return err
			}
			times[via] = append(times[via], r.Each...)
			slices.Sort(r.Each)
			middle := r.Each[len(r.Each)/2]
			if via == "direct" {
				direct = middle
			}
			over[via] = append(over[via], middle-direct)
		}
	}
	for _, via := range ways {
		m.add("request on a kept connection, "+via, "", times[via])
	}
	for _, via := range ways[1:] {
		slices.Sort(over[via])
		name, more := "request on a kept connection, "+via+" over direct", max(0, over[via][len(over[via])/2])
		if via == "relay" {
			m.limit(name, true, ms(more), "(no bound)")
			continue
		}
		m.atMost(name, more, 45*time.Microsecond)
	}
	return nil
}

// tunnels counts how many tunnels per second can be opened, and the latency of the slowest. Each way has its own
// server, and opens few enough connections for ports in TIME_WAIT not to matter.
func tunnels(m *machine) error {
	stop, err := m.startRelay(relayedServer)
	if err != nil {
		return err
	}
	defer stop()
	rate := 0.0
	for _, c := range []struct{ name, via, to string }{
		{"new connection, direct, 8 clients", "direct", echoServer},
		{"new tunnel through a bare relay, 8 clients", "relay", relayedServer},
		{"new tunnel, 8 clients", "connect", tunnelServer},
	} {
		r, err := m.load("tunnel", c.via, c.to, 500, 8)
		if err != nil {
			return err
		}
		rate = float64(len(r.Each)) / r.Elapsed.Seconds()
		m.add(c.name, fmt.Sprintf("%.0f/s", rate), r.Each)
	}
	m.limit("new tunnels", rate >= 6000, fmt.Sprintf("%.0f/s", rate), ">= 6000/s")
	m.atMost("new tunnel, p99", m.rows[len(m.rows)-1].P99, 10*time.Millisecond)
	return nil
}

func answers(m *machine) error {
	r, err := m.load("dns", "name", echoServer, 3000, 1)
	if err != nil {
		return err
	}
	m.atMost("DNS answer", m.add("DNS answer", "", r.Each), 200*time.Microsecond)
	return nil
}

// networked measures the time that a network adds to a cold run; runs with and without one take turns.
func networked(m *machine) error {
	plain := []string{"demesne", "run", "--", "true"}
	net := []string{"demesne", "run", "--allow-domain", "good.test", "--", "true"}
	var without, with []time.Duration
	for round := range m.rounds + 3 {
		for _, c := range []struct {
			argv []string
			to   *[]time.Duration
		}{{plain, &without}, {net, &with}} {
			if err := alone(); err != nil {
				return err
			}
			d, err := m.time(c.argv...)
			if err != nil {
				return err
			}
			if round >= 3 {
				*c.to = append(*c.to, d)
			}
		}
	}
	base := m.add("demesne run, no network", "cold, single-id", without)
	m.atMost("the network over a cold run", max(0, m.add("demesne run, networked", "cold, single-id", with)-base), 3*time.Millisecond)
	return nil
}

// rival runs the same measurements with srt, where it is installed. They have no bound.
func rival(m *machine) error {
	srt, err := m.srt()
	if err != nil || srt == nil {
		fmt.Fprintln(os.Stderr, "bench: srt: not compared (npm install -g @anthropic-ai/sandbox-runtime; it needs bwrap, socat and ripgrep)")
		return err
	}
	var cold []time.Duration
	for range min(m.rounds, 10) {
		d, err := m.time(append(srt[:len(srt):len(srt)], "true")...)
		if err != nil {
			return err
		}
		cold = append(cold, d)
	}
	m.add("srt, one domain", "cold", cold)
	const size = 256 << 20
	r, err := m.load("stream", "srt", streamServer, size, 1)
	if err != nil {
		return err
	}
	m.add("srt, 1 stream through CONNECT", fmt.Sprintf("%.2f GB/s", size/1e9/r.Elapsed.Seconds()), []time.Duration{r.Elapsed})
	if r, err = m.load("tunnel", "srt", tunnelServer, 100, 8); err != nil {
		return err
	}
	m.add("srt, new tunnel, 8 clients", fmt.Sprintf("%.0f/s", float64(len(r.Each))/r.Elapsed.Seconds()), r.Each)
	return nil
}

// idleNetworked measures the memory that the runner and its proxy keep for each idle sandbox: the growth from 10
// sandboxes to 50.
func idleNetworked(m *machine) error {
	plain, err := growth(m)
	if err != nil {
		return err
	}
	net, err := growth(m, "--allow-domain", "good.test")
	if err != nil {
		return err
	}
	m.limit("resident in runner and proxy per idle networked sandbox", net <= 64, fmt.Sprintf("%.0f KiB (%.0f without a network)", net, plain), "<= 64 KiB")
	return nil
}

func growth(m *machine, flags ...string) (kib float64, err error) {
	if err := alone(); err != nil {
		return 0, err
	}
	var ids []string
	defer func() { m.output(append([]string{"demesne", "rm"}, ids...)...) }()
	held := map[int]float64{}
	for _, n := range []int{10, 50} {
		for len(ids) < n {
			id, err := m.output(append([]string{"demesne", "create"}, flags...)...)
			if err != nil {
				return 0, err
			}
			ids = append(ids, id)
		}
		time.Sleep(time.Second)
		for _, p := range family() {
			if p.name == "demesne-runner" || p.name == "demesne-proxy" {
				held[n] += 1024 * anonymous(p.pid)
			}
		}
	}
	return (held[50] - held[10]) / 40, nil
}
