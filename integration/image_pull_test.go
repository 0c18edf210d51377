package integration

import (
	"math/rand"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"demesne/integration/fixture"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// noise returns a layer that does not compress.
func noise(size int) []fixture.Entry {
	raw := make([]byte, size)
	rand.New(rand.NewSource(int64(size))).Read(raw)
	return []fixture.Entry{fixture.File("noise", string(raw))}
}

// large pushes an image with a layer of 8 MiB.
func (g *gallery) large(repo string) (ref string, layer v1.Hash) {
	g.Helper()
	img := g.push(repo, v1.Config{Env: []string{"PATH=/bin"}, Cmd: []string{"wc", "-c", "/noise"}}, g.busybox(), noise(8<<20))
	layers, err := img.Layers()
	if err != nil {
		g.Fatal(err)
	}
	layer, err = layers[1].Digest()
	if err != nil {
		g.Fatal(err)
	}
	return g.reg.Ref(repo), layer
}

// TestImagePullShared checks that concurrent requests for an image share one download.
func TestImagePullShared(t *testing.T) {
	g := newGallery(t)
	ref, layer := g.large("big:1")
	g.reg.Fail(blobs(fixture.Fault{Rate: 16 << 20}))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if r := g.do("run", "--image", ref); r.code != 0 || r.stdout != "8388608 /noise\n" {
				t.Errorf("one of four: %+v", r)
			}
		})
	}
	wg.Wait()
	if n, _ := g.reg.Count("GET", layer.Hex); n != 1 {
		t.Errorf("%d GETs of one layer", n)
	}
}

// TestImagePullInterrupted ends the CLI or the helper in the middle of a pull, by various signals. The store
// remains valid, the helper ends, and the next pull fetches only the rest.
func TestImagePullInterrupted(t *testing.T) {
	for _, c := range []struct {
		name   string
		sig    syscall.Signal
		victim string
		code   int
	}{{"Ctrl-C", syscall.SIGINT, "", 130}, {"TERM", syscall.SIGTERM, "", 143}, {"kill -9", syscall.SIGKILL, "", 137}, {"kill -9 of the helper", syscall.SIGKILL, "demesne-images", 125}} {
		t.Run(c.name, func(t *testing.T) {
			g := newGallery(t)
			ref, layer := g.large("big:1")
			g.reg.Fail(func(r *http.Request) *fixture.Fault {
				if strings.Contains(r.URL.Path, layer.Hex) {
					return &fixture.Fault{Rate: 2 << 20}
				}
				return nil
			})
			cmd := g.cli("pull", ref)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "a part of the layer", func() bool {
				st, err := os.Stat(g.store + "/partial/" + layer.Hex)
				return err == nil && st.Size() > 1<<20
			})
			pids := []int{cmd.Process.Pid}
			if c.victim != "" {
				pids = named(c.victim)
			}
			for _, pid := range pids {
				syscall.Kill(pid, c.sig)
			}
			ended(t, cmd)
			if code := exitCode(cmd.ProcessState.Sys().(syscall.WaitStatus)); code != c.code {
				t.Errorf("exit %d, want %d", code, c.code)
			}
			eventually(t, "every process to be gone", func() bool { return len(descendants()) == 0 })
			if all := g.listed(); len(all) > 0 {
				t.Errorf("half an image is listed: %+v", all)
			}
			g.ok("images", "check")
			g.reg.Reset()
			if r := g.do("run", "--image", ref); r.code != 0 || r.stdout != "8388608 /noise\n" {
				t.Errorf("afterwards: %+v", r)
			}
			if _, bytes := g.reg.Count("GET", layer.Hex); bytes == 0 || bytes > 7<<20 {
				t.Errorf("%d bytes of 8 MiB were fetched again: %+v", bytes, g.reg.Requests())
			}
		})
	}
}

// TestImagePullKilled kills pulls at random moments in many rounds. The store never becomes inconsistent.
func TestImagePullKilled(t *testing.T) {
	g := newGallery(t)
	ref, _ := g.large("big:1")
	g.reg.Fail(blobs(fixture.Fault{Rate: 64 << 20}))
	rng := rand.New(rand.NewSource(1))
	for round := range max(8, rounds()/4) {
		cmd := g.cli("pull", ref)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rng.Intn(400)) * time.Millisecond) // another moment in each round
		victims := []int{cmd.Process.Pid}
		if round%2 == 1 {
			victims = append(victims, named("demesne-images")...)
		}
		for _, pid := range victims {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		ended(t, cmd)
		eventually(t, "every process to be gone", func() bool { return len(descendants()) == 0 })
		g.ok("images", "check")
		if round%4 == 3 {
			g.ok("gc", "--all")
		}
	}
	if r := g.do("run", "--image", ref); r.stdout != "8388608 /noise\n" {
		t.Errorf("at last: %+v", r)
	}
}

// TestImagePullRetried checks that transient failures of a registry or the network are retried, and definite
// answers are not.
func TestImagePullRetried(t *testing.T) {
	g := newGallery(t)
	for name, f := range map[string]fixture.Fault{
		"500": {Status: 500}, "503": {Status: 503}, "429": {Status: 429, Header: http.Header{"Retry-After": {"1"}}}, "cut": {Cut: 3 << 20},
	} {
		ref, layer := g.large("big:" + name)
		var once atomic.Bool
		g.reg.Fail(func(r *http.Request) *fixture.Fault {
			if strings.Contains(r.URL.Path, layer.Hex) && once.CompareAndSwap(false, true) {
				return &f
			}
			return nil
		})
		if r := g.do("run", "--image", ref); r.code != 0 || r.stdout != "8388608 /noise\n" {
			t.Errorf("%s: %+v", name, r)
		}
		_, bytes := g.reg.Count("GET", layer.Hex)
		if name == "cut" && bytes > 9<<20 {
			t.Errorf("cut: %d bytes were sent, as if from the start", bytes)
		}
		g.ok("rmi", ref)
		g.ok("gc", "--all")
		g.reg.Reset()
	}
}

func exitCode(ws syscall.WaitStatus) int {
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}
