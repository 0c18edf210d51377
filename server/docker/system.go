package docker

import (
	"encoding/json"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

func (s *server) ping(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, err := w.Write([]byte("OK"))
	return err
}

// noLogin accepts every login: no registry is asked.
func (s *server) noLogin(w http.ResponseWriter, _ *http.Request) error {
	return fail(http.StatusForbidden, "there is no registry here: images come from the store of the sandbox's caller")
}

func kernel() string {
	var u unix.Utsname
	unix.Uname(&u)
	return unix.ByteSliceToString(u.Release[:])
}

// engineVersion is the version that clients see. Some compare it with Docker's.
const engineVersion = "25.0.0-demesne"

func (s *server) version(w http.ResponseWriter, _ *http.Request) error {
	return answer(w, http.StatusOK, map[string]any{
		"Platform": map[string]string{"Name": "demesne"}, "Version": engineVersion, "ApiVersion": apiVersion, "MinAPIVersion": minVersion,
		"Os": "linux", "Arch": runtime.GOARCH, "KernelVersion": kernel(), "GoVersion": runtime.Version(), "GitCommit": "", "BuildTime": "",
		"Components": []any{map[string]any{"Name": "Engine", "Version": engineVersion, "Details": map[string]string{
			"ApiVersion": apiVersion, "MinAPIVersion": minVersion, "Os": "linux", "Arch": runtime.GOARCH, "KernelVersion": kernel(),
		}}},
	})
}

func (s *server) info(w http.ResponseWriter, _ *http.Request) error {
	n := map[string]int{}
	s.mu.Lock()
	for _, c := range s.containers {
		n[c.snap().status]++
	}
	all := len(s.containers)
	s.mu.Unlock()
	limits, err := s.most()
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, map[string]any{
		"ID": "demesne", "Name": "demesne", "ServerVersion": engineVersion, "OperatingSystem": "demesne", "OSType": "linux", "Architecture": machine(),
		"KernelVersion": kernel(), "Containers": all, "ContainersRunning": n[running], "ContainersStopped": n[exited], "ContainersPaused": 0, "Images": 0,
		"Driver": "overlayfs", "MemTotal": max(0, limits.Memory), "NCPU": runtime.NumCPU(), "SystemTime": time.Now().Format(time.RFC3339Nano),
		"MemoryLimit": true, "PidsLimit": true, "CpuCfsQuota": true, "LoggingDriver": "json-file", "CgroupDriver": "none", "CgroupVersion": "2",
		"SecurityOptions": []string{"name=rootless", "name=seccomp,profile=builtin"}, "Labels": []string{}, "Warnings": []string{},
		"Plugins": map[string]any{"Volume": []string{"local"}, "Network": []string{"bridge"}, "Log": []string{"json-file"}},
		"Swarm":   map[string]string{"LocalNodeState": "inactive"}, "RegistryConfig": map[string]any{}, "IndexServerAddress": "",
	})
}

func machine() string {
	var u unix.Utsname
	unix.Uname(&u)
	return unix.ByteSliceToString(u.Machine[:])
}

// event is a message about a container, network, volume or image.
type event struct {
	Status       string `json:"status,omitempty"` // of containers, for old clients, with the next two
	From         string `json:"from,omitempty"`
	ID           string `json:"id,omitempty"`
	Type, Action string
	Actor        actor
	Scope        string `json:"scope"`
	Time         int64  `json:"time"`
	TimeNano     int64  `json:"timeNano"`
}

type actor struct {
	ID         string
	Attributes map[string]string
}

// events passes events to clients. A client that does not read loses events.
type events struct {
	mu   sync.Mutex
	subs map[chan event]bool
}

func (e *events) tell(kind, action, id string, attributes map[string]string) {
	now := time.Now()
	ev := event{Type: kind, Action: action, Actor: actor{id, attributes}, Scope: "local", Time: now.Unix(), TimeNano: now.UnixNano()}
	if kind == "container" {
		ev.Status, ev.ID, ev.From = action, id, attributes["image"]
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for sub := range e.subs {
		select {
		case sub <- ev:
		default:
		}
	}
}

func (e *events) subscribe() (sub chan event, leave func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.subs == nil {
		e.subs = map[chan event]bool{}
	}
	sub = make(chan event, 256)
	e.subs[sub] = true
	return sub, func() { e.mu.Lock(); delete(e.subs, sub); e.mu.Unlock() }
}

func (s *server) followEvents(w http.ResponseWriter, r *http.Request) error {
	f, err := filtersOf(r)
	if err != nil {
		return err
	}
	sub, leave := s.events.subscribe()
	defer leave()
	var until <-chan time.Time
	if at, ok := stamp(r.URL.Query().Get("until")); ok {
		until = time.After(time.Until(at))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	http.NewResponseController(w).Flush()
	for {
		select {
		case ev := <-sub:
			is := func(want string) func(string) bool { return func(v string) bool { return v == want } }
			name := strings.TrimPrefix(ev.Actor.Attributes["name"], "/")
			if !f.any("type", is(ev.Type)) || !f.any("event", func(v string) bool { return v == ev.Action || strings.HasPrefix(ev.Action, v+":") }) || !f.labels(ev.Actor.Attributes) ||
				!f.any("container", func(v string) bool { return v == name || strings.HasPrefix(ev.Actor.ID, v) }) {
				continue
			}
			if err := json.NewEncoder(flushed{w}).Encode(ev); err != nil {
				return nil
			}
		case <-until:
			return nil
		case <-r.Context().Done():
			return nil
		case <-s.ctx.Done():
			return nil
		}
	}
}

// stamp parses a time: seconds since 1970, with a fraction, or RFC 3339.
func stamp(s string) (time.Time, bool) {
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		return time.UnixMicro(int64(f * 1e6)), f != 0
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	return t, err == nil
}
