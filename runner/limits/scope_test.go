package limits

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

// fakeManager answers like systemd on a private bus. It starts no unit. Its jobs end with result before their call
// returns, and after the failed job of another unit.
type fakeManager struct {
	conn    *dbus.Conn
	result  string
	refused *dbus.Error

	mu      sync.Mutex // the bus is not an order that the race detector sees
	unit    string
	got     map[string]any
	watched bool
}

func (m *fakeManager) Subscribe() *dbus.Error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watched = true
	return nil
}

func (m *fakeManager) StartTransientUnit(name, mode string, properties []unitProperty, _ []auxUnit) (dbus.ObjectPath, *dbus.Error) {
	if m.refused != nil {
		return "", m.refused
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unit, m.got = name+" "+mode, map[string]any{}
	for _, p := range properties {
		m.got[p.Name] = p.Value.Value()
	}
	if m.watched {
		m.conn.Emit(systemdObject, systemdManager+".JobRemoved", uint32(6), systemdObject+"/job/6", "other.scope", "failed")
		m.conn.Emit(systemdObject, systemdManager+".JobRemoved", uint32(7), systemdObject+"/job/7", name, m.result)
	}
	return systemdObject + "/job/7", nil
}

// startBus starts dbus-daemon, connects m to it unless m is nil, and sets the address that startScope uses.
func startBus(t *testing.T, m *fakeManager) {
	t.Helper()
	program, err := exec.LookPath("dbus-daemon")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	socket := filepath.Join(t.TempDir(), "bus")
	daemon := exec.Command(program, "--session", "--nofork", "--print-address", "--address=unix:path="+socket)
	out, err := daemon.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { daemon.Process.Kill(); daemon.Wait() })
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path="+socket)
	if m == nil {
		return
	}
	m.conn, err = dbus.Connect("unix:path=" + socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.conn.Close() })
	if err := m.conn.Export(m, systemdObject, systemdManager); err != nil {
		t.Fatal(err)
	}
	if _, err := m.conn.RequestName(systemdService, 0); err != nil {
		t.Fatal(err)
	}
}

// TestScope checks the request that a real bus passes on, and each way in which the job can end.
func TestScope(t *testing.T) {
	for _, c := range []struct {
		name string
		m    *fakeManager
		want string
	}{
		{"done", &fakeManager{result: "done"}, ""},
		{"failed", &fakeManager{result: "failed"}, `start unit "demesne-x.scope": job ended as "failed"`},
		{"refused", &fakeManager{refused: dbus.NewError("org.freedesktop.systemd1.UnitExists", []any{"exists"})}, `start unit "demesne-x.scope": exists`},
		{"no manager", nil, systemdService},
	} {
		t.Run(c.name, func(t *testing.T) {
			startBus(t, c.m)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			err := startScope(ctx, "demesne-x.scope", 1, 2)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v, want %q", err, c.want)
			}
			if c.m == nil || c.m.refused != nil {
				return
			}
			want := map[string]any{"Description": "demesne sandboxes", "PIDs": []uint32{1, 2}, "Delegate": true, "CollectMode": "inactive-or-failed",
				"MemoryAccounting": true, "TasksAccounting": true, "CPUAccounting": true}
			c.m.mu.Lock()
			defer c.m.mu.Unlock()
			if c.m.unit != "demesne-x.scope fail" || !reflect.DeepEqual(c.m.got, want) {
				t.Errorf("asked for %s with %v, want %v", c.m.unit, c.m.got, want)
			}
		})
	}
}

// TestScopeWithoutBus checks the errors without a bus, and with a socket that nothing serves.
func TestScopeWithoutBus(t *testing.T) {
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "")
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	if err := startScope(context.Background(), "x.scope", 1); !errors.Is(err, errNoBus) {
		t.Error(err)
	}
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent/bus")
	if err := startScope(context.Background(), "x.scope", 1); err == nil || !strings.Contains(err.Error(), "dial bus") {
		t.Error(err)
	}
}
