package rootfs

import (
	"bufio"
	"bytes"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// CertFile is the file of trusted certificates in a tree with Layout.Trust, for the variables that name such a
// file: SSL_CERT_FILE and the like.
const CertFile = "/etc/demesne-ca.pem"

// Trust selects the authority certificates in a tree's CertFile: the tree's own or, if it has none, the host's,
// plus Extra. A tree that has its own gets no CertFile without Extra, as its programs find those.
type Trust struct {
	Extra []byte // PEM
}

// bundles lists the paths at which systems keep certificates in one file: Debian and Alpine, Fedora, OpenSUSE, BSD
// and older Alpine.
var bundles = []string{
	"etc/ssl/certs/ca-certificates.crt", "etc/pki/tls/certs/ca-bundle.crt", "etc/ssl/ca-bundle.pem", "etc/ssl/cert.pem",
}

// maxBundle bounds how many bytes of a bundle are read. A usual one has 200 KiB.
const maxBundle = 4 << 20

// certFile returns the content of CertFile, or nil if the tree gets none. own opens a file of the tree; for the
// host's tree it opens the host's file.
func (t *Trust) certFile(own func(name string) (int, error)) []byte {
	if t == nil {
		return nil
	}
	f := bundle(own)
	if f != nil && len(t.Extra) == 0 { // the common case: the bundle is not read
		f.Close()
		return nil
	}
	if f == nil {
		f = bundle(hostFile)
	}
	if f == nil && len(t.Extra) == 0 {
		return nil
	}
	return append(append(readBundle(f), '\n'), t.Extra...)
}

func hostFile(name string) (int, error) {
	return unix.Open("/"+name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
}

// bundle opens the first of bundles that is a file with certificates, or returns nil.
func bundle(open func(name string) (int, error)) *os.File {
	for _, name := range bundles {
		fd, err := open(name)
		if err != nil {
			continue
		}
		f := os.NewFile(uintptr(fd), name)
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Size() <= maxBundle && hasCertificate(f) {
			return f
		}
		f.Close()
	}
	return nil
}

// hasCertificate reports whether f holds a certificate. It reads no further than the first one.
func hasCertificate(f *os.File) bool {
	lines := bufio.NewReader(io.NewSectionReader(f, 0, maxBundle))
	for begins := true; ; {
		line, err := lines.ReadSlice('\n')
		if begins && bytes.HasPrefix(line, []byte("-----BEGIN CERTIFICATE-----")) {
			return true
		}
		begins = err == nil
		if err != nil && err != bufio.ErrBufferFull {
			return false
		}
	}
}

// readBundle returns the content of f, and closes it. It returns nil for a nil f.
func readBundle(f *os.File) []byte {
	if f == nil {
		return nil
	}
	defer f.Close()
	text, err := io.ReadAll(io.NewSectionReader(f, 0, maxBundle))
	if err != nil {
		return nil
	}
	return text
}
