package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// egress measures the cost of a sandbox's network, compared with the same program and the same servers on lo.
func egress(m *machine) {
	for _, part := range []func(*machine){throughput, requests, tunnels, answers, networked, rival, idleNetworked} {
		part(m)
	}
	crowd(m, "100 networked at once", "--allow-domain", "good.test")
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
	if err == nil {
		err = json.Unmarshal([]byte(text), &r)
	}
	return r, err
}

// throughput compares stream rates; the ways of connecting take turns.
func throughput(m *machine) {
	for _, c := range []struct {
		name         string
		streams, n   int
		connect, own float64 // lower bounds; 0: no bound
	}{{"1 stream", 1, 1 << 30, 0.45, 0.4}, {"32 streams", 32, 32 << 20, 0.5, 0}} {
		rates := map[string][]float64{} // in GB/s, by way of connecting
		for range 3 {
			for _, via := range []string{"direct", "connect", "name"} {
				r := must(m.load("stream", via, streamServer, c.n, c.streams))
				rates[via] = append(rates[via], float64(c.n)*float64(c.streams)/1e9/r.Elapsed.Seconds())
			}
		}
		direct := median(rates["direct"])
		m.share(c.name+" through CONNECT", median(rates["connect"]), direct, c.connect)
		m.share(c.name+" by name", median(rates["name"]), direct, c.own)
	}
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
func requests(m *machine) {
	times, over := map[string][]time.Duration{}, map[string][]time.Duration{}
	ways := []string{"direct", "relay", "connect", "name"}
	defer m.startRelay(echoServer)()
	for range 15 {
		var direct time.Duration
		for _, via := range ways {
			r := must(m.load("request", via, echoServer, 600, 1))
			times[via] = append(times[via], r.Each...)
			middle := median(r.Each)
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
		name, more := "request on a kept connection, "+via+" over direct", max(0, median(over[via]))
		if via == "relay" {
			m.limit(name, true, ms(more), "(no bound)")
			continue
		}
		m.atMost(name, more, 45*time.Microsecond)
	}
}

// tunnels counts how many tunnels per second can be opened, and the latency of the slowest. Each way has its own
// server, and opens few enough connections for ports in TIME_WAIT not to matter.
func tunnels(m *machine) {
	defer m.startRelay(relayedServer)()
	rate := 0.0
	for _, c := range []struct{ name, via, to string }{
		{"new connection, direct, 8 clients", "direct", echoServer},
		{"new tunnel through a bare relay, 8 clients", "relay", relayedServer},
		{"new tunnel, 8 clients", "connect", tunnelServer},
	} {
		rate = m.tunnelsBy(c.name, c.via, c.to, 500)
	}
	m.limit("new tunnels", rate >= 6000, fmt.Sprintf("%.0f/s", rate), ">= 6000/s")
	m.atMost("new tunnel, p99", m.rows[len(m.rows)-1].P99, 10*time.Millisecond)
}

// tunnelsBy records the times of new tunnels of 8 clients, and returns how many they open in a second.
func (m *machine) tunnelsBy(name, via, to string, n int) float64 {
	r := must(m.load("tunnel", via, to, n, 8))
	rate := float64(len(r.Each)) / r.Elapsed.Seconds()
	m.add(name, fmt.Sprintf("%.0f/s", rate), r.Each)
	return rate
}

// answers times the sandbox's name server.
func answers(m *machine) {
	r := must(m.load("dns", "name", echoServer, 3000, 1))
	m.atMost("DNS answer", m.add("DNS answer", "", r.Each), 200*time.Microsecond)
}

// networked measures the time that a network adds to a cold run; runs with and without one take turns.
func networked(m *machine) {
	const without, with, note = "demesne run, no network", "demesne run, networked", "cold, single-id"
	took := m.cold(m.rounds,
		entry{name: without, note: note, run: m.timed("demesne", "run", "--", "true")},
		entry{name: with, note: note, run: m.timed("demesne", "run", "--allow-domain", "good.test", "--", "true")})
	m.atMost("the network over a cold run", max(0, took[with]-took[without]), 3*time.Millisecond)
}

// rival runs the same measurements with srt, where it is installed. They have no bound.
func rival(m *machine) {
	srt := m.comparedSrt("true")
	if srt == nil {
		return
	}
	m.repeated(min(m.rounds, 10), "srt, one domain", "cold", m.timed(srt...))
	const size = 256 << 20
	r := must(m.load("stream", "srt", streamServer, size, 1))
	m.add("srt, 1 stream through CONNECT", fmt.Sprintf("%.2f GB/s", size/1e9/r.Elapsed.Seconds()), []time.Duration{r.Elapsed})
	m.tunnelsBy("srt, new tunnel, 8 clients", "srt", tunnelServer, 100)
}

// idleNetworked measures the memory that the runner and its proxy keep for each idle sandbox: the growth from 10
// sandboxes to 50.
func idleNetworked(m *machine) {
	plain, net := growth(m), growth(m, "--allow-domain", "good.test")
	m.limit("resident in runner and proxy per idle networked sandbox", net <= 64, fmt.Sprintf("%.0f KiB (%.0f without a network)", net, plain), "<= 64 KiB")
}

func growth(m *machine, flags ...string) (kib float64) {
	check(alone())
	var ids []string
	defer func() { m.output(append([]string{"demesne", "rm"}, ids...)...) }()
	held := map[int]float64{}
	for _, n := range []int{10, 50} {
		for len(ids) < n {
			ids = append(ids, must(m.output(append([]string{"demesne", "create"}, flags...)...)))
		}
		time.Sleep(time.Second)
		for _, p := range family() {
			if p.name == "demesne-runner" || p.name == "demesne-proxy" {
				held[n] += 1024 * anonymous(p.pid)
			}
		}
	}
	return (held[50] - held[10]) / 40
}
