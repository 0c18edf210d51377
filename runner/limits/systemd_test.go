package limits

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/godbus/dbus/v5"
)

func TestOutside(t *testing.T) {
	for _, c := range []struct {
		name, uidMap string
		uid, want    uint32
		fails        bool
	}{
		{"init namespace", "         0          0 4294967295\n", 1000, 1000, false},
		{"single id", "         0       1000          1\n", 0, 1000, false},
		{"two extents", "0 1000 1\n1 100000 65536\n", 5, 100004, false},
		{"not mapped", "0 1000 1\n", 1, 0, true},
		{"empty", "", 0, 0, true},
	} {
		got, err := outsideID(c.uidMap, c.uid)
		if got != c.want || (err != nil) != c.fails {
			t.Errorf("%s: %d, %v", c.name, got, err)
		}
	}
}

func TestAddress(t *testing.T) {
	dir := t.TempDir()
	env := func(kv ...string) func(string) string {
		return func(k string) string {
			for i := 0; i < len(kv); i += 2 {
				if kv[i] == k {
					return kv[i+1]
				}
			}
			return ""
		}
	}
	if got := busAddress(env("XDG_RUNTIME_DIR", dir)); got != "" {
		t.Errorf("no socket: %q", got)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "bus"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got := busAddress(env("XDG_RUNTIME_DIR", dir)); got != "unix:path="+filepath.Join(dir, "bus") {
		t.Errorf("socket: %q", got)
	}
	if got := busAddress(env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/x", "XDG_RUNTIME_DIR", dir)); got != "unix:path=/x" {
		t.Errorf("named: %q", got)
	}
	if got := busAddress(env()); got != "" {
		t.Errorf("nothing: %q", got)
	}
}

func TestRemoved(t *testing.T) {
	job := dbus.ObjectPath("/job/7")
	signal := func(path dbus.ObjectPath, result string) *dbus.Signal {
		return &dbus.Signal{Name: systemdManager + ".JobRemoved", Body: []any{uint32(7), path, "x.scope", result}}
	}
	if r, mine := jobRemoved(signal(job, "failed"), job); r != "failed" || !mine {
		t.Error(r, mine)
	}
	if _, mine := jobRemoved(signal("/job/8", "done"), job); mine {
		t.Error("another job taken for ours")
	}
	if _, mine := jobRemoved(&dbus.Signal{Name: "x"}, job); mine {
		t.Error("another signal taken for ours")
	}
}

// TestPropertyTypes checks the D-Bus type that systemd documents for StartTransientUnit's properties.
func TestPropertyTypes(t *testing.T) {
	if got := dbus.SignatureOf(scopeProperties([]int{1})).String(); got != "a(sv)" {
		t.Error(got)
	}
	if got := dbus.SignatureOf([]auxUnit{}).String(); got != "a(sa(sv))" {
		t.Error(got)
	}
}
