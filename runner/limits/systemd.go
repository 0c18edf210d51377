package limits

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/godbus/dbus/v5"
)

// This file asks the user's own systemd for a delegated control group.
//
//	runner ── StartTransientUnit(demesne-KEY-PID.scope, Delegate=yes, PIDs=[PID]) ──▶ systemd --user
//	       ◀───────────────────────── JobRemoved(done) ─────────────────────────────────
//
// It does the work of `systemd-run --user --scope -p Delegate=yes` without that program. When the last process
// of the scope exits, systemd ends the scope and removes its directories. So nothing needs to be undone.
//
// The caller is in a user namespace where its user id is 0. The bus compares the id in the authentication with
// the id the kernel reports, so hostUID finds the real one.

// errNoBus means that the user has no session bus.
var errNoBus = errors.New("no user session bus")

const (
	systemdService = "org.freedesktop.systemd1"
	systemdManager = systemdService + ".Manager"
	systemdObject  = dbus.ObjectPath("/org/freedesktop/systemd1")
)

// unitProperty is systemd's (name, value) pair, D-Bus type (sv).
type unitProperty struct {
	Name  string
	Value dbus.Variant
}

// auxUnit is an auxiliary unit of StartTransientUnit, type (sa(sv)). The list is always empty.
type auxUnit struct {
	Name       string
	Properties []unitProperty
}

// startScope moves pids into a new transient scope called name, which must end in ".scope". The processes are in its
// group when startScope returns nil.
func startScope(ctx context.Context, name string, pids ...int) error {
	addr := busAddress(os.Getenv)
	if addr == "" {
		return fmt.Errorf("ask systemd for a scope: %w", errNoBus)
	}
	conn, err := connectBus(ctx, addr)
	if err != nil {
		return fmt.Errorf("ask systemd for a scope: %w", err)
	}
	defer conn.Close()
	if err := startUnit(ctx, conn, name, pids); err != nil {
		return fmt.Errorf("start unit %q: %w", name, err)
	}
	return nil
}

// hasBus reports whether a bus address exists, without connecting to it.
func hasBus() bool { return busAddress(os.Getenv) != "" }

func busAddress(getenv func(string) string) string {
	if a := getenv("DBUS_SESSION_BUS_ADDRESS"); a != "" {
		return a
	}
	if dir := getenv("XDG_RUNTIME_DIR"); dir != "" {
		bus := filepath.Join(dir, "bus")
		if st, err := os.Stat(bus); err == nil && st.Mode()&os.ModeSocket != 0 {
			return "unix:path=" + dbus.EscapeBusAddressValue(bus)
		}
	}
	return ""
}

func connectBus(ctx context.Context, addr string) (*dbus.Conn, error) {
	uid, err := hostUID()
	if err != nil {
		return nil, err
	}
	conn, err := dbus.Dial(addr, dbus.WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("dial bus: %w", err)
	}
	if err := conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.FormatUint(uint64(uid), 10))}); err != nil {
		return nil, errors.Join(fmt.Errorf("authenticate as %d: %w", uid, err), conn.Close())
	}
	if err := conn.Hello(); err != nil {
		return nil, errors.Join(fmt.Errorf("greet bus: %w", err), conn.Close())
	}
	return conn, nil
}

// scopeProperties returns the properties of the scope. CollectMode lets systemd unload a failed scope too, so that
// its name is free for the next runner.
func scopeProperties(pids []int) []unitProperty {
	list := make([]uint32, len(pids))
	for i, p := range pids {
		list[i] = uint32(p)
	}
	p := []unitProperty{
		{"Description", dbus.MakeVariant("demesne sandboxes")},
		{"PIDs", dbus.MakeVariant(list)},
		{"Delegate", dbus.MakeVariant(true)},
		{"CollectMode", dbus.MakeVariant("inactive-or-failed")},
	}
	for _, on := range []string{"MemoryAccounting", "TasksAccounting", "CPUAccounting"} {
		p = append(p, unitProperty{on, dbus.MakeVariant(true)})
	}
	return p
}

// startUnit asks for the unit and waits for its job to end. Only then are the processes in the new group.
func startUnit(ctx context.Context, conn *dbus.Conn, name string, pids []int) error {
	signals := make(chan *dbus.Signal, 64)
	conn.Signal(signals)
	match := []dbus.MatchOption{dbus.WithMatchInterface(systemdManager), dbus.WithMatchMember("JobRemoved")}
	if err := conn.AddMatchSignalContext(ctx, match...); err != nil {
		return fmt.Errorf("watch jobs: %w", err)
	}
	m := conn.Object(systemdService, systemdObject)
	// Without a subscriber systemd sends no signals.
	if err := m.CallWithContext(ctx, systemdManager+".Subscribe", 0).Err; err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	var job dbus.ObjectPath
	call := m.CallWithContext(ctx, systemdManager+".StartTransientUnit", 0, name, "fail", scopeProperties(pids), []auxUnit{})
	if err := call.Store(&job); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case s, ok := <-signals:
			if !ok {
				return errors.New("bus connection ended")
			}
			if result, mine := jobRemoved(s, job); mine {
				if result != "done" {
					return fmt.Errorf("job ended as %q", result)
				}
				return nil
			}
		}
	}
}

// jobRemoved parses JobRemoved(id, job, unit, result).
func jobRemoved(s *dbus.Signal, job dbus.ObjectPath) (result string, mine bool) {
	if s.Name != systemdManager+".JobRemoved" || len(s.Body) != 4 {
		return "", false
	}
	path, _ := s.Body[1].(dbus.ObjectPath)
	result, _ = s.Body[3].(string)
	return result, path == job
}

// hostUID returns the caller's user id in the parent user namespace, from /proc/self/uid_map.
func hostUID() (uint32, error) {
	b, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return 0, fmt.Errorf("read id map: %w", err)
	}
	return outsideID(string(b), uint32(os.Geteuid()))
}

func outsideID(uidMap string, uid uint32) (uint32, error) {
	for line := range strings.Lines(uidMap) {
		var in, out, n uint32
		if _, err := fmt.Sscan(line, &in, &out, &n); err == nil && uid >= in && uid-in < n {
			return out + (uid - in), nil
		}
	}
	return 0, fmt.Errorf("map id %d: not in the id map", uid)
}
