package client

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
	"demesne/runner/api"
	"demesne/runner/grants"
	"demesne/runner/ipc"
	"demesne/runner/userns"
)

// runDir is a run directory, through which callers find live sandboxes:
//
//	KEY.sock    the caller socket of a live runner
//	KEY.lock    flock(2)ed while that runner, or its reaper, lives
//	KEY.log     the runner's stderr; removed after a normal end
//	state/      a file ID.json for each sandbox, see package store
//	mnt/        always empty: a runner mounts its own tmpfs here, in its own namespace
//	scratch/    writable trees of sandboxes that have no mount namespace
//	grants/     a record of the files given to each live sandbox, for the reaper; see package grants
//
// KEY identifies everything that callers must have in common to share a runner: their ids, namespaces and protocol. The part
// after a dash identifies rights and demesne programs, which may differ between callers.
type runDir struct {
	path        string
	key         string
	sandboxRoot string // the [SandboxRoot]; empty: none
	changesRoot string // the [ChangesRoot]; empty: none
	lists       *lists // of this directory and others
}

// SandboxRoot returns the directory of persistent sandboxes, which package store manages: $DEMESNE_SANDBOX_ROOT or
// ~/.demesne/sandboxes, for real root /var/lib/demesne/sandboxes. Its content belongs to the sandboxes' ids, so only
// a runner can remove it.
func SandboxRoot() (string, error) {
	return sandboxRoot(realRoot())
}

func sandboxRoot(root bool) (string, error) {
	if p := os.Getenv("DEMESNE_SANDBOX_ROOT"); p != "" {
		return filepath.Abs(p)
	}
	if root {
		return "/var/lib/demesne/sandboxes", nil
	}
	dir, err := fsutil.StateDir("sandboxes")
	if err != nil {
		return "", fmt.Errorf("find sandbox root: %w", err)
	}
	return dir, nil
}

// ChangesRoot returns the directory of what sandboxes changed in directories with an Upper: ~/.demesne/changes.
func ChangesRoot() (string, error) {
	dir, err := fsutil.StateDir("changes")
	if err != nil {
		return "", fmt.Errorf("find changes: %w", err)
	}
	return fsutil.WithoutLinks(dir), nil
}

// OutputRoot is where runs without --out keep their /out: $DEMESNE_OUTPUT_ROOT or
// ~/.demesne/out.
func OutputRoot() (string, error) {
	if p := os.Getenv("DEMESNE_OUTPUT_ROOT"); p != "" {
		return filepath.Abs(p)
	}
	dir, err := fsutil.StateDir("out")
	if err != nil {
		return "", fmt.Errorf("find output root: %w", err)
	}
	return dir, nil
}

// runDirs lists candidates for the run directory, best first.
func runDirs() []string {
	var dirs []string
	if x := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(x) {
		dirs = append(dirs, filepath.Join(x, "demesne"))
	}
	if dir, err := fsutil.StateDir("run"); err == nil && filepath.IsAbs(dir) {
		dirs = append(dirs, dir)
	}
	uid := strconv.Itoa(os.Getuid())
	return append(dirs, "/run/demesne-"+uid, "/tmp/demesne-"+uid)
}

// openRunDir finds or creates the run directory and computes the key for the programs p.
func openRunDir(p programs, root bool) (*runDir, error) {
	var tried []string
	for _, named := range runDirs() {
		dir, err := prepareRunDir(named, root)
		if err != nil {
			tried = append(tried, err.Error())
			continue
		}
		sandboxes, err := sandboxRoot(root)
		if err == nil { // on an error, no sandboxes are persistent
			sandboxes = fsutil.WithoutLinks(sandboxes)
		}
		key, err := runnerKey(p, dir, sandboxes)
		if err != nil {
			return nil, err
		}
		changes, _ := ChangesRoot() // on an error, no mount can have an upper
		return &runDir{path: dir, key: key, sandboxRoot: sandboxes, changesRoot: changes, lists: &lists{}}, nil
	}
	return nil, fmt.Errorf("make run directory: %s", strings.Join(tried, "; "))
}

// others returns the run directories that other programs of this user may use: a job of cron, su and a unit of the system do
// not get XDG_RUNTIME_DIR, although the user has a session. The key of each has only the first part.
func (d *runDir) others() (all []*runDir) {
	for _, named := range append(runDirs(), sessionRunDir()) {
		if _, err := ours(named); err != nil {
			continue
		}
		path, err := fsutil.EvalSymlinks(named)
		if err != nil || path == d.path {
			continue
		}
		if same, err := d.lists.sameKey(path, d.sandboxRoot); err == nil {
			all = append(all, &runDir{path: path, key: same + keySeparator, sandboxRoot: d.sandboxRoot, changesRoot: d.changesRoot, lists: d.lists})
		}
	}
	return all
}

// sessionRunDir is the run directory of a login session, as systemd makes it.
func sessionRunDir() string { return fmt.Sprintf("/run/user/%d/demesne", os.Getuid()) }

// prepareRunDir creates dir and returns its path without symbolic links, because libcontainer refuses a root file
// system behind one. A runner started by real root has another, high uid. It must be able to search the path to mnt/.
func prepareRunDir(dir string, root bool) (real string, err error) {
	if strings.ContainsRune(dir, '\n') { // the reaper's list of files has one per line
		return "", fmt.Errorf("use %q: has a newline", dir)
	}
	mode := fs.FileMode(0o700)
	if root {
		mode = 0o711
		if err := searchable(filepath.Dir(dir)); err != nil {
			return "", err
		}
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return "", err
	}
	if root { // MkdirAll or another process may have created parents that are not searchable
		if err := searchable(filepath.Dir(dir)); err != nil {
			return "", err
		}
	}
	if err := takeRunDir(dir, mode, root); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

// takeRunDir sets the mode of dir and creates its subdirectories, if the caller owns dir. Root in a user namespace
// also appears to own real root's run directory. takeRunDir then recognizes it by its state directory, which belongs
// to the high uid.
func takeRunDir(dir string, mode fs.FileMode, root bool) error {
	st, err := ours(dir)
	if err != nil {
		return err
	}
	state := filepath.Join(dir, "state")
	if _, err := ours(state); !root && err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if st.Mode().Perm() != mode {
		if err := os.Chmod(dir, mode); err != nil {
			return err
		}
	}
	for name, mode := range map[string]fs.FileMode{"mnt": mode, "state": 0o700, "scratch": 0o700, grants.Subdir: 0o700} {
		if err := os.Mkdir(filepath.Join(dir, name), mode); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if !root {
		return nil
	}
	// The runner owns it, although the reaper, which is root, also writes there.
	if err := os.Mkdir(filepath.Join(state, "ended"), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return errors.Join(os.Lchown(filepath.Join(state, "ended"), rootBase, rootBase), os.Lchown(state, rootBase, rootBase),
		os.Lchown(filepath.Join(dir, grants.Subdir), rootBase, rootBase))
}

// ours returns information about dir. It fails unless dir is a directory, not a link, that the caller owns.
func ours(dir string) (fs.FileInfo, error) {
	st, err := os.Lstat(dir)
	if err != nil {
		return nil, err
	}
	if sys := st.Sys().(*syscall.Stat_t); !st.IsDir() || int(sys.Uid) != os.Getuid() {
		return nil, fmt.Errorf("use %q: not a directory that this user owns", dir)
	}
	return st, nil
}

// place is a directory of demesne that a sandbox must not get.
type place struct {
	path     string
	holds    string // what it has, for the error
	variable string // puts it elsewhere
}

// private lists the places that no sandbox may see, not even read-only. A process that can connect to the socket in
// the run directory controls the runner, and a read-only mount does not prevent connect(2) (F1, P9). In the directory
// of demesne's own files are keys, tokens, and what later runs obey (P9, P14).
func (d *runDir) private() []place {
	all := []place{{d.path, "demesne's run directory", "XDG_RUNTIME_DIR"}}
	for _, other := range d.others() {
		all = append(all, place{other.path, "demesne's run directory", "XDG_RUNTIME_DIR"})
	}
	for _, path := range fsutil.PrivateState() {
		all = append(all, place{path, "demesne's own files", fsutil.StateVariable})
	}
	return all
}

// kept lists the places that no sandbox may write. The records of persistent sandboxes decide which files a restarted
// one gets, and demesne apply makes the changes in the caller's directories. The configuration has the policies of
// later programs.
func (d *runDir) kept() []place {
	all := []place{
		{d.sandboxRoot, "the files of other sandboxes", "DEMESNE_SANDBOX_ROOT"},
		{d.changesRoot, "the changes of other sandboxes", fsutil.StateVariable},
	}
	// A later call without these variables obeys the files in the home.
	if state, err := fsutil.StateDir(""); err == nil && filepath.IsAbs(os.Getenv("HOME")) && state != filepath.Join(os.Getenv("HOME"), ".demesne") {
		all = append(all, place{fsutil.WithoutLinks(filepath.Join(os.Getenv("HOME"), ".demesne")), "demesne's own files", "HOME"})
	}
	config, _ := os.UserConfigDir() // some files are always in the home
	for _, dir := range slices.Compact([]string{config, filepath.Join(os.Getenv("HOME"), ".config")}) {
		if filepath.IsAbs(dir) {
			all = append(all, place{fsutil.WithoutLinks(filepath.Join(dir, "demesne")), "demesne's configuration", "XDG_CONFIG_HOME"})
		}
	}
	return all
}

// apart refuses a path that contains one of the places or lies inside one, also one that does not exist yet. The places
// have no links in them. It ignores those that are covered.
func apart(path string, places []place, covered ...string) error {
	real, err := fsutil.EvalSymlinks(path)
	if err != nil {
		return err
	}
	for _, p := range places {
		if p.path != "" && fsutil.Overlap(p.path, real) && !slices.Contains(covered, p.path) {
			return &ipc.Error{
				Code: ipc.CodeInvalid,
				Text: fmt.Sprintf("%q overlaps %s %q", path, p.holds, p.path),
				Hint: fmt.Sprintf("name a directory apart from it, or set %s to a directory elsewhere", p.variable),
			}
		}
	}
	return noCredentials(real)
}

// searchable checks that all users may search every existing component of dir. MkdirAll creates the others that way.
func searchable(dir string) error {
	for p := dir; ; p = filepath.Dir(p) {
		st, err := os.Stat(p)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case st.Mode().Perm()&0o001 == 0:
			return fmt.Errorf("use %q: other users have no search permission", p)
		}
		if p == "/" {
			return nil
		}
	}
}

// keySeparator separates the two parts of a key: see siblings.
const keySeparator = "-"

// runnerKey hashes the caller's identity and its view of the machine, and then its rights and programs.
func runnerKey(p programs, dir, sandboxRoot string) (string, error) {
	same, err := sameKey(dir, sandboxRoot)
	if err != nil {
		return "", err
	}
	rights := sha256.New()
	for _, path := range []string{p.runner, p.init} {
		st, err := os.Stat(path)
		if err != nil {
			return "", fmt.Errorf("find program: %w", err)
		}
		sys := st.Sys().(*syscall.Stat_t)
		fmt.Fprintln(rights, sys.Dev, sys.Ino, sys.Size, sys.Mtim.Nano())
	}
	fmt.Fprintln(rights, noNewPrivs(), narrowed())
	fmt.Fprintf(rights, "%q\n", confinement("/proc/self"))
	return same + keySeparator + hex.EncodeToString(rights.Sum(nil)[:4]), nil
}

// sameKey returns the part of a key that siblings share. The hash includes the run directory, because the key also names control
// groups, which all run directories share.
func sameKey(dir, sandboxRoot string) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q\n", dir, sandboxRoot)
	fmt.Fprintln(h, os.Getuid(), os.Getgid())
	for _, ns := range []string{"user", "mnt", "net", "pid"} {
		link, err := os.Readlink("/proc/self/ns/" + ns)
		if err != nil {
			return "", fmt.Errorf("read own namespaces: %w", err)
		}
		fmt.Fprintln(h, link)
	}
	fmt.Fprintln(h, api.Protocol)
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// confinement returns how the kernel confines a process, by its directory in /proc. A runner has the confinement of the
// caller that started it, as have its sandboxes. A confined caller must not get a sandbox of a runner without its
// confinement, and must not impose its own on others. The values are:
//
//   - the labels of Linux security modules: AppArmor's, SELinux's, Smack's. A module that is off has none;
//   - the mode of seccomp and the number of filters. The kernel shows what a filter does to CAP_SYS_ADMIN of the initial
//     namespace only (PTRACE_SECCOMP_GET_FILTER), so callers under different filters of the same number are not told
//     apart. A runner for each process tree would tell them apart, but no later command would find its sandbox;
//   - the capabilities that the caller has, and those that it can gain. newuidmap needs some.
func confinement(proc string) (all []string) {
	for _, name := range []string{"current", "apparmor/current", "smack/current"} {
		all = append(all, strings.TrimRight(readSmall(proc+"/attr/"+name), "\n\x00"))
	}
	for line := range strings.Lines(readSmall(proc + "/status")) {
		switch key, _, _ := strings.Cut(line, ":"); key {
		case "Seccomp", "Seccomp_filters", "CapEff", "CapBnd":
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all
}

// alonePrefix begins the second part of a key that no other caller has. The caller's pid follows.
const alonePrefix = "alone."

// alone returns d with a key that no other caller has.
func (d *runDir) alone() *runDir {
	same, _, _ := strings.Cut(d.key, keySeparator)
	other := *d
	other.key = fmt.Sprintf("%s%s%s%d", same, keySeparator, alonePrefix, os.Getpid())
	return &other
}

func noNewPrivs() bool {
	nnp, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	return err == nil && nnp == 1
}

// narrowed lists the resource limits of this process that are below common values. A runner that it starts would
// impose them on all callers.
func narrowed() (low []uint64) {
	for _, r := range []struct {
		resource int
		enough   uint64
	}{{unix.RLIMIT_NOFILE, 4096}, {unix.RLIMIT_FSIZE, unix.RLIM_INFINITY}, {unix.RLIMIT_CPU, unix.RLIM_INFINITY}, {unix.RLIMIT_AS, unix.RLIM_INFINITY}, {unix.RLIMIT_DATA, unix.RLIM_INFINITY}} {
		var l unix.Rlimit
		if unix.Getrlimit(r.resource, &l) != nil {
			continue
		}
		value := l.Cur
		if r.resource == unix.RLIMIT_NOFILE {
			value = l.Max // Go programs raise their soft limit to it
		}
		if value < r.enough {
			low = append(low, uint64(r.resource), value)
		}
	}
	return low
}

func (d *runDir) file(suffix string) string { return filepath.Join(d.path, d.key+suffix) }

// programs holds the paths of demesne's other programs.
type programs struct{ runner, init, proxy string }

// findPrograms looks in libexec, or else in $DEMESNE_LIBEXEC. If neither is set, it looks beside the running program
// and then in ../libexec/demesne.
func findPrograms(libexec string) (programs, error) {
	path, err := findProgram("demesne-runner", libexec)
	dir := filepath.Dir(path)
	return programs{path, filepath.Join(dir, "demesne-init"), filepath.Join(dir, "demesne-proxy")}, err
}

// FindProgram finds another of demesne's programs in the same way as [Connect] finds the runner.
func FindProgram(name string) (string, error) { return findProgram(name, "") }

// FrontendProgram has every frontend but the command line. Its first argument names one, such as "mcp".
const FrontendProgram = "demesne-frontend"

// FindFrontend returns the command that starts a frontend. Its arguments follow.
func FindFrontend(name string) (argv []string, err error) {
	path, err := FindProgram(FrontendProgram)
	return []string{path, name}, err
}

func findProgram(name, libexec string) (string, error) {
	if err := noProc(); err != nil {
		return "", err
	}
	if libexec == "" {
		libexec = os.Getenv("DEMESNE_LIBEXEC")
	}
	dirs := []string{libexec}
	if libexec == "" {
		self, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("find own program: %w", err)
		}
		dirs = []string{filepath.Dir(self), filepath.Join(filepath.Dir(self), "..", "libexec", "demesne")}
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", &ipc.Error{
		Code: ipc.CodeInternal, Text: fmt.Sprintf("find program %q: not in %q", name, dirs),
		Hint: "install all demesne programs into one directory, and set DEMESNE_LIBEXEC if demesne itself is elsewhere",
	}
}

// makeSandboxRoot makes the directory of persistent sandboxes for a runner in this mode. An error is ignored: the runner
// fails too and reports it in the receipt.
func (d *runDir) makeSandboxRoot(mode string) {
	var st unix.Stat_t
	if unix.Lstat(d.sandboxRoot, &st) == nil && (mode != userns.ModeRoot || st.Uid == rootBase) {
		return
	}
	if d.sandboxRoot != "" {
		if realRoot() { // the directory of images beside it has files of other ids, also where this runner has no namespaces
			os.MkdirAll(filepath.Dir(d.sandboxRoot), 0o755)
		}
		prepareOwned(d.sandboxRoot, mode == userns.ModeRoot)
	}
}
