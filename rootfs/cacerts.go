package rootfs

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
)

// CertFile is the file of trusted certificates in a tree with Layout.Trust, for the variables that name such a
// file: SSL_CERT_FILE and the like.
const CertFile = "/etc/demesne-ca.pem"

// Trust selects the authority certificates in a tree's CertFile: the tree's own or, if it has none, the host's,
// plus Extra. A tree that has its own gets no CertFile without Extra and Host, as its programs find those.
type Trust struct {
	Extra []byte // PEM
	// Host adds the host's certificates, for programs that only trust a file of a variable, such as Node. The host's tree
	// has them already, so its file is named in place of CertFile.
	Host bool
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
	if f != nil && len(t.Extra) == 0 && !t.Host { // the common case: the bundle is not read
		f.Close()
		return nil
	}
	text := readBundle(f)
	if f == nil || t.Host {
		host := readBundle(bundle(hostFile))
		if text == nil && host == nil && len(t.Extra) == 0 {
			return nil
		}
		if text != nil {
			text = append(text, '\n')
		}
		text = append(text, host...)
	}
	return append(append(text, '\n'), t.Extra...)
}

// OfHost returns the file of the host's tree that has the certificates, or what such a file must contain. Both are empty if
// programs need no variable that names it.
func (t *Trust) OfHost() (file string, text []byte) {
	if t == nil {
		return "", nil
	}
	if t.Host && len(t.Extra) == 0 {
		if f := bundle(hostFile); f != nil {
			defer f.Close()
			return "/" + f.Name(), nil
		}
	}
	own := Trust{Extra: t.Extra} // the tree's own are the host's
	return "", own.certFile(hostFile)
}

// hostTrust writes CertFile and JavaFile into the host's tree, and returns the path for [Tree.CertFile].
func (p *plan) hostTrust(t *Trust) (string, error) {
	file, text := t.OfHost()
	if text == nil {
		return file, nil
	}
	return CertFile, errors.Join(p.write(CertFile[1:], text), p.write(JavaFile[1:], javaStore(text)))
}

func hostFile(name string) (int, error) {
	return unix.Open("/"+name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
}

// bundle opens the first of fsutil.CertBundles that is a file with certificates, or returns nil.
func bundle(open func(name string) (int, error)) *os.File {
	for _, name := range fsutil.CertBundles {
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
