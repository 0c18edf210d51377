package rootfs

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// etcRows is all of the host's /etc that a sandbox sees. Directories are bound read-only, small
// files are copied (cheaper, and the sandbox may change them); a link into /usr stays a link.
// A name may hold wildcards in its last part. Nothing here may hold a secret, which leaves out
// gitconfig, npmrc, pip.conf, maven/settings.xml, wgetrc, profile.d, machine-id, and every ssl/private.
var etcRows = []string{
	// the loader, and what the names of programs mean
	"alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d",
	// certificates that are trusted, and how to use them
	"ca-certificates", "ca-certificates.conf", "crypto-policies", "pki/ca-trust", "pki/tls/cert.pem",
	"pki/tls/certs", "pki/tls/openssl.cnf", "ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf",
	// which system this is
	"debian_version", "fedora-release", "localtime", "lsb-release", "os-release", "redhat-release", "timezone",
	// names and numbers
	"ethertypes", "gai.conf", "host.conf", "magic", "mime.types", "networks", "protocols", "rpc", "services",
	// terminals, shells, editors, fonts
	"bash.bashrc", "fonts", "inputrc", "terminfo", "vim",
	// languages and tools that keep a part of themselves in /etc
	"R", "java-*", "login.defs", "locale.alias", "maven/logging", "maven/m2.conf", "perl", "python3*",
}

// copyMax is the largest file that is copied; larger ones are bound.
const copyMax = 128 << 10

// etc makes /etc: the synthetic files first, then the rows that the host has.
func (p *plan) etc(l Layout) error {
	for _, f := range syntheticEtc(l) {
		if err := p.write("etc/"+f.name, 0o644, []byte(f.content)); err != nil {
			return err
		}
	}
	if err := p.symlink("/proc/self/mounts", "etc/mtab"); err != nil {
		return err
	}
	fd, err := unix.Open("/etc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if absent(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open /etc: %w", err)
	}
	defer unix.Close(fd)
	h := hostEtc{plan: p, fd: fd, made: map[string]bool{}}
	return h.add()
}

// hostEtc is the host's /etc while rows of it are added to a plan.
type hostEtc struct {
	*plan
	fd   int
	made map[string]bool // parents made inside
	buf  []byte
}

// add adds the rows. One listing tells which exist, so a row that the host lacks costs nothing.
func (h *hostEtc) add() error {
	types, err := h.list()
	if err != nil {
		return fmt.Errorf("read /etc: %w", err)
	}
	for _, row := range etcRows {
		if strings.Contains(row, "*") {
			for name, typ := range types {
				if ok, _ := path.Match(row, name); !ok {
					continue
				}
				if err := h.row(name, typ); err != nil {
					return err
				}
			}
			continue
		}
		top, _, nested := strings.Cut(row, "/")
		typ, ok := types[top]
		if !ok {
			continue
		}
		if nested {
			typ = unix.DT_UNKNOWN
		}
		if err := h.row(row, typ); err != nil {
			return err
		}
	}
	return nil
}

// list returns the names in /etc and their types.
func (h *hostEtc) list() (map[string]byte, error) {
	types := make(map[string]byte, 128)
	h.buf = make([]byte, 16<<10)
	for {
		n, err := unix.Getdents(h.fd, h.buf)
		if err != nil || n == 0 {
			return types, err
		}
		for _, e := range entries(h.buf[:n]) {
			types[e.name] = e.typ
		}
	}
}

// row adds one file, directory or link.
func (h *hostEtc) row(name string, typ byte) error {
	if typ == unix.DT_UNKNOWN {
		typ = h.typeOf(name, unix.AT_SYMLINK_NOFOLLOW)
	}
	if typ == unix.DT_LNK {
		target, err := readlink(h.fd, name)
		if err == nil && inSystem(path.Join("/etc", path.Dir(name)), target) {
			if err := h.parents(name); err != nil {
				return err
			}
			return h.symlink(target, "etc/"+name)
		}
		typ = h.typeOf(name, 0) // leads elsewhere: what it leads to takes its place
	}
	switch typ {
	case unix.DT_DIR:
		if err := h.parents(name); err != nil {
			return err
		}
		return h.bind("/etc/"+name, "etc/"+name, attrBindRO)
	case unix.DT_REG:
		return h.copy(name)
	}
	return nil
}

// typeOf returns the type of a name, DT_UNKNOWN if there is none that we may see.
func (h *hostEtc) typeOf(name string, flags int) byte {
	var st unix.Stat_t
	if unix.Fstatat(h.fd, name, &st, flags) != nil {
		return unix.DT_UNKNOWN
	}
	return byte(st.Mode & unix.S_IFMT >> 12) // as IFTODT(3)
}

// copy copies a small file, and binds a large one.
func (h *hostEtc) copy(name string) error {
	fd, err := unix.Openat(h.fd, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if absent(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open \"/etc/%s\": %w", name, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return err
	}
	if err := h.parents(name); err != nil {
		return err
	}
	if st.Size > copyMax {
		return h.bind("/etc/"+name, "etc/"+name, attrBindRO)
	}
	if int64(len(h.buf)) < st.Size {
		h.buf = make([]byte, st.Size)
	}
	n, err := unix.Read(fd, h.buf[:st.Size])
	if err != nil {
		return fmt.Errorf("read \"/etc/%s\": %w", name, err)
	}
	return h.write("etc/"+name, 0o644, h.buf[:n])
}

// parents makes the directories above a name inside.
func (h *hostEtc) parents(name string) error {
	up := path.Dir(name)
	if up == "." || h.made[up] {
		return nil
	}
	if err := h.parents(up); err != nil {
		return err
	}
	h.made[up] = true
	return h.mkdir("etc/"+up, 0o755)
}

// inSystem tells whether a link in the directory from leads into one of the system directories,
// which the tree has too.
func inSystem(from, target string) bool {
	if !path.IsAbs(target) {
		target = path.Join(from, target)
	}
	top, _, _ := strings.Cut(strings.TrimPrefix(path.Clean(target), "/"), "/")
	return slices.Contains(systemDirs, top)
}
