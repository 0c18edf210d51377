// Package services runs the services of an image in its sandbox: demesne-init services, a command that the caller puts before
// its own. It needs no shell, and it runs as the sandbox's user, without a right that the command lacks.
//
// It is neither part of PID 1 nor driven from outside. PID 1 is the audited path, and starts only what a caller asks for. A
// caller outside would have to live as long as the services, and create ends at once. The program demesne-init is in every
// sandbox anyway.
//
//	main.go       the command line; the process before the command
//	services.go   what a directory contains
//	supervise.go  the supervisor: start, restart, logs, stop
//
// A directory contains, in the order of their names:
//
//	init.d/NAME        executed once before all services: an executable file; a .sh file that is not executable is sourced by /bin/sh, and its variables remain
//	NAME               an executable file: a service
//	NAME/run           a service, as of s6; it starts in its directory. A file NAME/down keeps it from starting
//	NAME.conf          a service of supervisord: command and directory of its section [program:…]
//	app.supervisor.d/  further services
//
// Other files, and names with a leading dot, are ignored. The supervisor is not a boundary: services can kill it, and forge
// its logs. A sandbox whose supervisor has died keeps its limits, as each sandbox does.
package services

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of a directory.
const (
	maxServices = 1000
	maxConf     = 64 << 10 // bytes of a file of supervisord
	maxLog      = 1 << 20  // bytes of a log from which on a restart begins a new one
	maxName     = 200      // bytes of the name of a log
)

// Logs is the directory of the logs in a sandbox: NAME.log of each service, and what it had before in NAME.log.1.
const Logs = "/tmp/demesne-services"

// service is one service. Its argv begins with a path.
type service struct {
	name, dir string
	argv      []string

	pid    int // 0: it does not run
	began  time.Time
	failed int // ends since it last ran for long
	log    *os.File
}

// services returns the services of a directory, in their order.
func services(dir string) (all []*service, err error) {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		run := filepath.Join(path, "run")
		var further []*service
		switch {
		case strings.HasPrefix(e.Name(), ".") || e.Name() == initDir:
		case e.Name() == supervisord:
			further, err = services(path)
		case executable(run) && !exists(filepath.Join(path, "down")):
			further = []*service{{name: e.Name(), dir: path, argv: []string{run}}}
		case strings.HasSuffix(e.Name(), ".conf"):
			if s, wrong := configured(path); s != nil {
				further = []*service{s}
			} else {
				err = wrong
			}
		case executable(path):
			further = []*service{{name: e.Name(), argv: []string{path}}}
		}
		if err != nil {
			return nil, err
		}
		all = append(all, further...)
	}
	if len(all) > maxServices {
		return nil, fmt.Errorf("%q has more than %d services", dir, maxServices)
	}
	return all, nil
}

const initDir, supervisord = "init.d", "app.supervisor.d"

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && unix.Access(path, unix.X_OK) == nil
}

// configured reads a file of supervisord. It returns nil for a file without a program, or with autostart=false.
func configured(path string) (s *service, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(io.LimitReader(f, maxConf)); lines.Scan(); {
		line, _, _ := strings.Cut(strings.TrimSpace(lines.Text()), " ;")
		name, program := strings.CutPrefix(line, "[program:")
		key, value, _ := strings.Cut(line, "=")
		switch key, value = strings.TrimSpace(key), strings.TrimSpace(value); {
		case program && s != nil:
			return nil, fmt.Errorf("%q has more than one program", path)
		case program:
			s = &service{name: strings.TrimSuffix(name, "]")}
		case s != nil && key == "command":
			s.argv = []string{"/bin/sh", "-c", "exec " + value}
		case s != nil && key == "directory":
			s.dir = value
		case key == "autostart" && value == "false":
			return nil, nil
		}
	}
	if s != nil && s.argv == nil {
		return nil, fmt.Errorf("%q has no command", path)
	}
	return s, nil
}

// logPath returns the path of the log of the nth service, whose own name may have any bytes.
func (s *service) logPath(n int) string {
	var b strings.Builder
	for _, c := range []byte(s.name) {
		if c == '-' || c == '.' || c == '_' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02x", c)
		}
	}
	name := b.String()
	if len(name) > maxName {
		name = fmt.Sprintf("%s~%d", name[:maxName], n)
	}
	return filepath.Join(Logs, name+".log")
}

// openLog opens the log of the nth service. A long log becomes the one before. A service whose log cannot be written runs
// nevertheless.
func (s *service) openLog(n int) *os.File {
	path := s.logPath(n)
	if info, err := os.Lstat(path); err == nil && info.Size() > maxLog {
		os.Rename(path, path+".1")
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		f, _ = os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	}
	return f
}
