package client

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"demesne/internal/fsutil"
	"demesne/runner"
)

// Real root's sandboxes use their own id range. It is far above the range that useradd(8) gives the first user, so
// root's sandboxes and a user's containers never share an id.
const (
	rootBase  = 0x70000000
	rangeSize = 65536
)

// idMaps is the content of a runner's uid_map and gid_map.
type idMaps struct {
	UID, GID []runner.IDRange
	Why      string // for a single id: the reason
	Fix      string
}

// realRoot reports whether the process is uid 0 of the initial user namespace and has the usual capabilities. Root in
// a container counts as an ordinary user.
func realRoot() bool {
	if os.Geteuid() != 0 {
		return false
	}
	if strings.Join(strings.Fields(readSmall("/proc/self/uid_map")), " ") != "0 0 4294967295" {
		return false
	}
	const sysAdmin, setUID, setGID, chown = 21, 7, 6, 0
	need := uint64(1<<sysAdmin | 1<<setUID | 1<<setGID | 1<<chown)
	return effectiveCaps()&need == need
}

func effectiveCaps() uint64 {
	for line := range strings.Lines(readSmall("/proc/self/status")) {
		if v, ok := strings.CutPrefix(line, "CapEff:"); ok {
			n, _ := strconv.ParseUint(strings.TrimSpace(v), 16, 64)
			return n
		}
	}
	return 0
}

// idPlan is the intended id map of a runner, chosen while the runner starts.
type idPlan struct {
	idMaps
	fixed  bool  // real root's range: written directly, without a fallback
	lesser error // why only a single id is possible
}

// planMaps chooses the fixed range for real root, and otherwise the user's subordinate ids if any.
func planMaps(root, single bool) *idPlan {
	if root {
		m := []runner.IDRange{{Inside: 0, Host: rootBase, Size: rangeSize}}
		return &idPlan{idMaps: idMaps{UID: m, GID: m}, fixed: true}
	}
	maps, err := subordinateMaps(single)
	return &idPlan{idMaps: maps, lesser: err}
}

// outMaps maps host ids for the mount of an /out that belongs to real root. Root's files appear as the sandbox
// root's. All other sandbox ids map to the sandbox's own range on the host. So the sandbox cannot change other users'
// files there, and nothing needs to be settled afterwards. See [outMap].
func outMaps() *idPlan {
	m := []runner.IDRange{{Inside: 0, Host: rootBase, Size: 1}, {Inside: rootBase + 1, Host: rootBase + 1, Size: rangeSize - 1}}
	return &idPlan{idMaps: idMaps{UID: m, GID: m}, fixed: true}
}

// write maps the ids into pid's new user namespace. Where newuidmap(1) does not work, it falls back to the caller's
// single id. newuidmap fails under no_new_privs, in bwrap, without a passwd entry, and in nested namespaces. One that a short
// machine did not start, or killed, is no reason.
func (p *idPlan) write(pid int) (*idMaps, error) {
	if p.fixed {
		return &p.idMaps, errors.Join(writeMap(pid, "uid_map", p.UID), writeMap(pid, "gid_map", p.GID))
	}
	err := p.lesser
	if err == nil {
		if err = runMappers(pid, p.UID, p.GID); err == nil {
			return &p.idMaps, nil
		}
		if killed := new(exec.ExitError); fsutil.Short(err) || errors.As(err, &killed) && killed.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
			return nil, fmt.Errorf("write id map: %w", err)
		}
		for _, name := range []string{"uid_map", "gid_map"} {
			if m, rerr := os.ReadFile(procFile(pid, name)); rerr != nil || len(m) > 0 {
				return nil, fmt.Errorf("%w: %w", errHalfMapped, err)
			}
		}
	}
	why, fix := explainSubids(err)
	maps := &idMaps{
		UID: []runner.IDRange{{Host: uint32(os.Geteuid()), Size: 1}},
		GID: []runner.IDRange{{Host: uint32(os.Getegid()), Size: 1}},
		Why: why, Fix: fix,
	}
	// Writing one's own gid_map requires denying setgroups first, user_namespaces(7).
	if err := os.WriteFile(procFile(pid, "setgroups"), []byte("deny"), 0); err != nil {
		return nil, fmt.Errorf("write id map: %w", err)
	}
	return maps, errors.Join(writeMap(pid, "uid_map", maps.UID), writeMap(pid, "gid_map", maps.GID))
}

func procFile(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }

func writeMap(pid int, name string, m []runner.IDRange) error {
	var b bytes.Buffer
	for _, r := range m {
		fmt.Fprintln(&b, r.Inside, r.Host, r.Size)
	}
	if err := os.WriteFile(procFile(pid, name), b.Bytes(), 0); err != nil {
		return fmt.Errorf("write id map: %w", err)
	}
	return nil
}

// Reasons why subordinate ids are not available.
var (
	errNoRange  = errors.New("no subordinate ids")
	errNoHelper = errors.New("newuidmap is not installed")
	errNNP      = errors.New("newuidmap cannot gain privileges under no_new_privs")
	errSingle   = errors.New("one of newuidmap and newgidmap failed")
	// errHalfMapped: only one of the maps was written, and a map cannot be written twice. The caller starts over with
	// a single id.
	errHalfMapped = errors.New("only one of the two id maps was written")
)

func explainSubids(err error) (why, fix string) {
	switch {
	case errors.Is(err, errNoRange):
		return err.Error(), "demesne check  # names an unused id range"
	case errors.Is(err, errNoHelper):
		return err.Error(), "sudo apt-get install uidmap"
	}
	return err.Error(), ""
}

func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return strconv.Itoa(os.Geteuid())
}

// subordinateMaps returns maps of the caller's subordinate ids.
func subordinateMaps(single bool) (m idMaps, err error) {
	switch {
	case single:
		return m, errSingle
	case noNewPrivs():
		return m, errNNP
	}
	if m.UID, err = subordinate("/etc/subuid", os.Geteuid()); err != nil {
		return m, err
	}
	m.GID, err = subordinate("/etc/subgid", os.Getegid())
	return m, err
}

// runMappers runs newuidmap and newgidmap concurrently. One package contains both, so it runs neither if one is missing.
func runMappers(pid int, uid, gid []runner.IDRange) error {
	var wg sync.WaitGroup
	var paths [2]string
	errs := make([]error, 2)
	names, maps := []string{"newuidmap", "newgidmap"}, [][]runner.IDRange{uid, gid}
	for i, name := range names {
		if paths[i], errs[i] = exec.LookPath(name); errs[i] != nil {
			return errNoHelper
		}
	}
	for i, path := range paths {
		wg.Go(func() { errs[i] = runMapper(path, pid, maps[i]) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func runMapper(path string, pid int, m []runner.IDRange) error {
	args := []string{strconv.Itoa(pid)}
	for _, r := range m {
		for _, n := range []uint32{r.Inside, r.Host, r.Size} {
			args = append(args, strconv.FormatUint(uint64(n), 10))
		}
	}
	out, err := exec.Command(path, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(path), err, bytes.TrimSpace(out))
	}
	return nil
}

// subordinate reads the caller's range from a file in the format of subuid(5). It uses the first range of at least
// 65535 ids.
func subordinate(file string, id int) ([]runner.IDRange, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w in %s", errNoRange, file)
	}
	uid := strconv.Itoa(os.Geteuid())
	var name string // looked up only if a line may be the caller's
	for line := range strings.Lines(string(b)) {
		who, start, count, ok := parseSubid(line)
		if !ok || count < rangeSize-1 {
			continue
		}
		if who != uid && name == "" {
			name = userName()
		}
		if who == uid || who == name {
			return []runner.IDRange{{Host: uint32(id), Size: 1}, {Inside: 1, Host: start, Size: rangeSize - 1}}, nil
		}
	}
	return nil, fmt.Errorf("%w for %s in %s", errNoRange, userName(), file)
}

func parseSubid(line string) (who string, start, count uint32, ok bool) {
	f := strings.Split(strings.TrimSpace(line), ":")
	if len(f) != 3 {
		return "", 0, 0, false
	}
	s, err1 := strconv.ParseUint(f[1], 10, 32)
	c, err2 := strconv.ParseUint(f[2], 10, 32)
	return f[0], uint32(s), uint32(c), err1 == nil && err2 == nil && f[0] != ""
}
