package pid1

import (
	"cmp"
	"errors"
	"path/filepath"
	"strings"
	"syscall"

	"demesne/runner/ipc"

	"golang.org/x/sys/unix"
)

const pathPrefix = "PATH="

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// start executes the first of the command lines that can be executed.
func (c *command) start() (pid int, err error) {
	if err := c.who.access(c.dir, unix.O_DIRECTORY); err != nil {
		return 0, ipc.Errorf(ipc.CodeInvalid, "change directory %q: %w", c.dir, err)
	}
	for {
		pid, err = c.execute()
		var e *ipc.Error
		if err == nil || len(c.rest) == 0 || errors.As(err, &e) && e.Code == ipc.CodeInternal {
			return pid, err
		}
		c.argv, c.rest = ipc.Strings(c.rest[0]), c.rest[1:]
	}
}

// execute looks a program up and executes it. Its errors match a shell's: not found, or found but not executable.
func (c *command) execute() (pid int, err error) {
	name := c.argv[0]
	// If no candidate works, report the first refusal: "permission denied" says more than a later "not found".
	var refused error
	for _, path := range c.candidates() {
		err := c.who.access(c.abs(path), 0)
		if err == nil {
			pid, err = c.fork(path)
		}
		switch {
		case err == nil:
			return pid, nil
		case is(err, unix.ENOENT, unix.ENOTDIR):
		case is(err, unix.EACCES, unix.EPERM, unix.ENOEXEC, unix.EISDIR, unix.ELOOP, unix.ENAMETOOLONG,
			unix.ETXTBSY, unix.E2BIG, unix.ELIBBAD, unix.EINVAL) || errors.Is(err, errInterpreter):
			refused = cmp.Or(refused, err)
		default:
			return 0, ipc.Errorf(ipc.CodeInternal, "execute %q: %w", name, err)
		}
	}
	if refused != nil {
		return 0, ipc.Errorf(ipc.CodeNotExecutable, "execute %q: %w", name, refused)
	}
	return 0, ipc.Errorf(ipc.CodeCommandNotFound, "execute %q: not found", name)
}

// candidates returns the paths to try: the name itself if it contains a slash, else one path per directory of
// the command's PATH. An empty element means the working directory.
func (c *command) candidates() []string {
	name := c.argv[0]
	if strings.Contains(name, "/") {
		return []string{name}
	}
	path := defaultPath
	for _, e := range c.env {
		if v, ok := strings.CutPrefix(e, pathPrefix); ok {
			path = v
		}
	}
	var out []string
	for dir := range strings.SplitSeq(path, ":") {
		// filepath.Join would drop the "./" of a relative element.
		if dir == "" {
			dir = "."
		}
		out = append(out, dir+"/"+name)
	}
	return out
}

// abs returns path resolved against the command's directory.
func (c *command) abs(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return c.dir + "/" + path
}

var errInterpreter = errors.New("its interpreter does not exist")

// fork starts the command from path, which exists. It returns when execve has succeeded or failed.
func (c *command) fork(path string) (int, error) {
	pid, err := syscall.ForkExec(path, c.argv, &syscall.ProcAttr{Dir: c.dir, Env: c.env, Files: c.files, Sys: &c.attr})
	if is(err, unix.ENOENT) {
		return 0, errInterpreter
	}
	return pid, err
}
