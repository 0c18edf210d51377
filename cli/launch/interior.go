package launch

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path"
	"strconv"
	"strings"

	"demesne/cli/app"
	"demesne/internal/cmdline"
	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/session"
)

// InteriorFlags are flags of run and create about what is inside and comes from no file of this machine.
func (o *Options) InteriorFlags() cmdline.Flags {
	return cmdline.Flags{
		{Group: app.GroupSandbox, Long: "platform", Arg: "OS/ARCH", Set: cmdline.Text(&o.platform),
			Help: "platform of an image with several, such as linux/arm64; programs of another processor need its emulator (default this machine's)"},
		{Group: app.GroupSandbox, Long: "tmpfs", Arg: "PATH[:SIZE]", Repeat: true, Set: o.addTmpfs,
			Help: "mount an empty directory in memory at PATH; it is discarded when the sandbox stops (default SIZE: the limit of --disk)"},
		{Group: app.GroupSandbox, Long: "hostname", Arg: "NAME", Set: o.setHostname,
			Help: "host name inside (default demesne)"},
		{Group: app.GroupSandbox, Long: "init", Arg: "DIR[:PORT]", Optional: true, Set: o.setServices,
			Help: "run the services in a directory of the sandbox before the command (default " + defaultServices + "), and wait until PORT answers inside"},
		{Group: app.GroupNetwork, Long: "add-host", Arg: "NAME:ADDR", Repeat: true, Set: o.addHost,
			Help: "add a name to /etc/hosts inside; the network rules decide whether ADDR can be reached"},
	}
}

func (o *ProcessOptions) EnvFileFlag() cmdline.Flags {
	return cmdline.Flags{{Group: app.GroupCommand, Long: "env-file", Arg: "FILE", Repeat: true, Complete: cmdline.File, Set: o.readEnvFile,
		Help: "set the variables of a file, with one NAME[=VALUE] a line, # for comments and no quotes; --env wins"}}
}

// defaultServices is where an image has its services.
const defaultServices = "/etc/demesne/services"

// setServices parses DIR:PORT, of which each part may be missing.
func (o *Options) setServices(s string) error {
	dir, port, found := strings.Cut(s, ":")
	v := session.Services{Dir: cmp.Or(dir, defaultServices)}
	if n, err := strconv.ParseUint(port, 10, 16); found && (err != nil || n == 0) {
		return fmt.Errorf("port %q: not a number from 1 to 65535", port)
	} else if found {
		v.Port = uint16(n)
	}
	if !path.IsAbs(v.Dir) || strings.ContainsRune(v.Dir, 0) {
		return fmt.Errorf("%q: not an absolute path in the sandbox", v.Dir)
	}
	o.Services = &v
	return nil
}

func (o *Options) setHostname(s string) error {
	o.interior.Hostname = s
	return checkHostname(s)
}

// addHost parses NAME:ADDR, or NAME=ADDR as docker does. An address of IPv6 can have brackets.
func (o *Options) addHost(s string) error {
	name, addr, found := strings.Cut(s, ":")
	if eq := strings.IndexByte(s, '='); eq >= 0 && (!found || eq < len(name)) {
		name, addr, found = s[:eq], s[eq+1:], true
	}
	ip, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(addr, "["), "]"))
	if !found || err != nil || ip.Zone() != "" {
		return errors.New("not a name, a colon and an address (such as db.test:192.0.2.7 or db.test:[2001:db8::7])")
	}
	if err := checkHostname(name); err != nil {
		return err
	}
	o.interior.Hosts = append(o.interior.Hosts, runner.Host{Name: name, Addr: ip})
	return nil
}

func (o *Options) addTmpfs(s string) error {
	target, size, limited := strings.Cut(s, ":")
	if !strings.HasPrefix(target, "/") {
		return errors.New("not an absolute path inside the sandbox")
	}
	t := runner.Tmpfs{Target: path.Clean(target)}
	if limited {
		if err := cmdline.Size(&t.Size, 4096)(size); err != nil {
			return err
		}
	}
	if t.Size == text.Unlimited {
		return errors.New("needs a size (such as 64m)")
	}
	o.interior.Tmpfs = append(o.interior.Tmpfs, t)
	return nil
}

// maxEnvFile bounds a file of variables: the kernel takes no larger environment.
const maxEnvFile = 2 << 20

// readEnvFile reads a file of variables in the format of docker. Its errors quote no line, which may hold a secret.
func (o *ProcessOptions) readEnvFile(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return fsutil.Reason(err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxEnvFile+1))
	switch {
	case err != nil:
		return fsutil.Reason(err)
	case len(raw) > maxEnvFile:
		return fmt.Errorf("longer than %s", text.FormatBytes(maxEnvFile))
	}
	lines := bufio.NewScanner(bytes.NewReader(bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf"))))
	lines.Buffer(nil, maxEnvFile+1)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimLeft(lines.Text(), " \t")
		if line == "" || line[0] == '#' {
			continue
		}
		if err := app.CheckEnv(line); err != nil {
			err = fmt.Errorf("line %d: %w", n, err)
			if strings.HasPrefix(line, "export ") {
				return text.Hinted(err, "leave out the word export: the file is not a shell script")
			}
			return err
		}
		o.fileEnv = append(o.fileEnv, line)
	}
	return lines.Err()
}

// checkHostname is the part of the check that a user can get wrong; the runner checks again.
func checkHostname(s string) error {
	ok := s != "" && len(s) <= 64 && strings.Trim(s, ".-") == s
	for _, c := range []byte(s) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		ok = ok && (letter || '0' <= c && c <= '9' || strings.IndexByte("-._", c) >= 0)
	}
	if !ok {
		return errors.New("not a host name (letters, digits, '-', '.' and '_', at most 64)")
	}
	return nil
}
