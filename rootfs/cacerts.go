package rootfs

import (
	"bufio"
	"bytes"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// CertFile is where a tree with Layout.Trust has the certificates to be trusted, for the
// variables that name such a file: SSL_CERT_FILE and the like.
const CertFile = "/etc/demesne-ca.pem"

// Trust says what certificates of authorities a tree has in CertFile: those that it has
// anyway, or else the host's, and Extra. Without Extra a tree that has its own gets no
// CertFile: its programs find those.
type Trust struct {
	Extra []byte // PEM
}

// bundles are where systems keep certificates in one file: Debian and Alpine, Fedora,
// OpenSUSE, BSD and older Alpine.
var bundles = []string{
	"etc/ssl/certs/ca-certificates.crt", "etc/pki/tls/certs/ca-bundle.crt", "etc/ssl/ca-bundle.pem", "etc/ssl/cert.pem",
}

// maxBundle bounds what is read of one. Usual are 200 KiB.
const maxBundle = 4 << 20

// certFile is CertFile's content, or nil if there is to be none. own opens a file of the
// tree; for the host's it is the host's.
func (t *Trust) certFile(own func(name string) (int, error)) []byte {
	if t == nil {
		return nil
	}
	f := bundle(own)
	if f != nil && len(t.Extra) == 0 { // as nearly always: it is not read then
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

// bundle opens the first one that is a file with certificates, or gives nil.
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

// hasCertificate reads as far as the first one.
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

// readBundle gives all of f, and closes it. Of nil it is nothing.
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
