package rootfs

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
)

// how says how an entry of the host's /etc comes into the tree. Each entry costs one attempt: a missing one costs
// one failed system call, and listing /etc would cost fifty.
type how int

const (
	bindDir  how = iota // a directory, bound read-only
	copyFile            // a file, copied if it is small: as fast as a bind, and the sandbox may change it
	keepLink            // like copyFile, but a link into the system directories stays a link
)

// etcRows lists everything of the host's /etc that a sandbox sees: static configuration that programs fail without. No
// entry may hold a secret, or say which machine this is. The test TestHostEtc lists the entries outside, with the
// reasons. integration/etcfiles.sh lists what Debian's packages install there. A mount costs several times as much as
// a file, so rows name the files of a directory that has few.
var etcRows = []struct {
	name string
	how  how
}{
	// the dynamic loader, and the alternatives of program names
	{"alternatives", bindDir},
	{"ld.so.cache", copyFile},
	{"ld.so.conf", copyFile},
	{"ld.so.conf.d", bindDir},
	// trusted certificates, and how to use them
	{"crypto-policies", bindDir},
	{"pki/ca-trust", bindDir},
	{"pki/tls/cert.pem", keepLink},
	{"pki/tls/certs", bindDir},
	{"pki/tls/openssl.cnf", keepLink},
	{"ssl/ca-bundle.pem", copyFile},
	{"ssl/cert.pem", keepLink},
	{"ssl/certs", bindDir},
	{"ssl/openssl.cnf", keepLink},
	// the system's name and version, and its time zone
	{"debian_version", copyFile},
	{"localtime", keepLink},
	{"lsb-release", copyFile},
	{"os-release", keepLink},
	{"redhat-release", keepLink},
	{"timezone", copyFile},
	// names and numbers
	{"ethertypes", copyFile},
	{"gai.conf", copyFile},
	{"host.conf", copyFile},
	{"locale.alias", copyFile},
	{"magic", copyFile},
	{"magic.mime", copyFile},
	{"mailcap", copyFile},
	{"mime.types", copyFile},
	{"netconfig", copyFile},
	{"papersize", copyFile},
	{"protocols", copyFile},
	{"rpc", copyFile},
	{"services", copyFile},
	{"xattr.conf", copyFile},
	// terminals, shells, fonts, texts
	{"bash.bashrc", copyFile},
	{"dictionaries-common", bindDir},
	{"fonts", bindDir},
	{"groff/man.local", copyFile},
	{"groff/mdoc.local", copyFile},
	{"inputrc", copyFile},
	{"manpath.config", copyFile},
	{"nanorc", copyFile},
	{"sgml", bindDir},
	{"terminfo", bindDir},
	{"texmf", bindDir},
	{"vim/vimrc", copyFile},
	{"xml", bindDir},
	// graphics and sound
	{"GNUstep/GNUstep.conf", copyFile},
	{"ImageMagick-6", bindDir},
	{"ImageMagick-7", bindDir},
	{"X11/app-defaults", bindDir},
	{"X11/rgb.txt", copyFile},
	{"ghostscript", bindDir},
	{"gimp", bindDir},
	{"glvnd", bindDir},
	{"gtk-2.0/gtkrc", copyFile},
	{"gtk-3.0/settings.ini", copyFile},
	{"libreoffice", bindDir},
	{"matplotlibrc", copyFile},
	{"openal/alsoft.conf", copyFile},
	{"timidity", bindDir},
	{"vdpau_wrapper.cfg", copyFile},
	{"vulkan", bindDir},
	// computing, and tools of developers
	{"OpenCL", bindDir},
	{"dpkg/origins", bindDir},
	{"gdb/gdbinit", copyFile},
	{"gprofng.rc", copyFile},
	{"libibverbs.d", bindDir},
	{"login.defs", copyFile},
	{"mke2fs.conf", copyFile},
	{"ocamlfind.conf", copyFile},
	{"octave.conf", copyFile},
	{"octaverc", copyFile},
	{"odbcinst.ini", copyFile},
	{"openmpi", bindDir},
	// Debian's command for chromium, which fails without them; the other files there are keys of the administrator
	{"chromium.d/default-flags", copyFile},
	{"chromium.d/extensions", copyFile},
	// languages that keep a part of themselves in /etc
	{"R", bindDir},
	{"java", bindDir},
	{"maven/logging", bindDir},
	{"maven/m2.conf", copyFile},
	{"mono", bindDir},
}

// HostEtc returns the paths of the rows, for a sandbox that sees the host's own /etc.
func HostEtc() []string {
	all := make([]string, len(etcRows))
	for i, row := range etcRows {
		all[i] = "/etc/" + row.name
	}
	return all
}

// javaDir exists if a Java is installed; on Debian each version has its own directory in /etc, such as
// java-17-openjdk.
const javaDir, javaPrefix = "/usr/lib/jvm", "java-"

// copyMax is the size in bytes of the largest file that is copied. Up to this size a copy costs as much as a bind,
// and saves one mount in each new mount namespace. At ten times the size it costs four times as much.
const copyMax = 16 << 10

// etc makes /etc: the synthetic files first, then the rows that the host has.
func (p *plan) etc(l Layout) error {
	for _, f := range syntheticEtc(l) {
		if err := p.write("etc/"+f.name, []byte(f.content)); err != nil {
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
	for _, row := range etcRows {
		if err := h.row(row.name, row.how); err != nil {
			return err
		}
	}
	return h.java()
}

// hostEtc is the host's /etc while rows of it are added to a plan.
type hostEtc struct {
	*plan
	fd   int
	made map[string]bool // parents made inside
	buf  [copyMax]byte
}

// row adds one file, directory or link, if the host has it.
func (h *hostEtc) row(name string, how how) error {
	switch how {
	case bindDir:
		return h.bindRow(name, unix.S_IFDIR)
	case keepLink:
		target, err := fsutil.ReadlinkAt(h.fd, name)
		if err != nil || !inSystem(path.Join("/etc", path.Dir(name)), target) {
			break
		}
		if err := h.parents(name); err != nil {
			return err
		}
		return h.symlink(target, "etc/"+name)
	}
	return h.copyRow(name)
}

// bindRow binds the file at name, after following links, if it is of that kind.
func (h *hostEtc) bindRow(name string, kind uint32) error {
	fd, err := clone(h.fd, name, attrBindRO)
	if absent(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("bind \"/etc/%s\": %w", name, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != kind {
		unix.Close(fd)
		return err
	}
	if err := h.parents(name); err != nil {
		unix.Close(fd)
		return err
	}
	return h.mount(planned{fd, "etc/" + name, kind, true})
}

// copyRow copies a file if it is small, and binds it otherwise.
func (h *hostEtc) copyRow(name string) error {
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
	if st.Size > copyMax {
		return h.bindRow(name, unix.S_IFREG)
	}
	n, err := unix.Read(fd, h.buf[:])
	if err != nil {
		return fmt.Errorf("read \"/etc/%s\": %w", name, err)
	}
	if err := h.parents(name); err != nil {
		return err
	}
	return h.write("etc/"+name, h.buf[:n])
}

// java adds the directories of Debian's Javas.
func (h *hostEtc) java() error {
	if unix.Access(javaDir, unix.F_OK) != nil {
		return nil
	}
	for {
		n, err := unix.Getdents(h.fd, h.buf[:])
		if err != nil {
			return fmt.Errorf("read /etc: %w", err)
		}
		if n == 0 {
			return nil
		}
		for _, e := range fsutil.ParseDirents(h.buf[:n]) {
			if !strings.HasPrefix(e.Name, javaPrefix) {
				continue
			}
			if err := h.bindRow(e.Name, unix.S_IFDIR); err != nil {
				return err
			}
		}
	}
}

// parents makes the parent directories of name in the tree.
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

// inSystem reports whether a link in the directory from leads into one of the system directories, which the tree
// has too.
func inSystem(from, target string) bool {
	if !path.IsAbs(target) {
		target = path.Join(from, target)
	}
	top, _, _ := strings.Cut(strings.TrimPrefix(path.Clean(target), "/"), "/")
	return slices.Contains(systemDirs, top)
}
