package rootfs

import (
	"crypto/sha1"
	"encoding/binary"
	"encoding/pem"
	"strconv"
)

// JavaFile has the content of [CertFile], and exists when that does. Java reads no PEM, and takes the file from the
// property javax.net.ssl.trustStore instead of a variable.
const JavaFile = "/etc/demesne-ca.jks"

// javaStore makes a Java key store, of Sun's type JKS, from the certificates in a PEM text. The format is defined by
// sun.security.provider.JavaKeyStore in OpenJDK. Its password is the usual default, which programs that only read certificates
// need not give.
func javaStore(text []byte) []byte {
	const magic, version, trusted = 0xfeedfeed, 2, 2
	var entries []byte
	count := uint32(0)
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		entries = binary.BigEndian.AppendUint32(entries, trusted)
		entries = appendUTF(entries, strconv.Itoa(int(count)))
		entries = binary.BigEndian.AppendUint64(entries, 0) // creation date: 1970
		entries = appendUTF(entries, "X.509")
		entries = binary.BigEndian.AppendUint32(entries, uint32(len(block.Bytes)))
		entries = append(entries, block.Bytes...)
		count++
	}
	var store []byte
	for _, n := range []uint32{magic, version, count} {
		store = binary.BigEndian.AppendUint32(store, n)
	}
	store = append(store, entries...)
	sum := sha1.Sum(append([]byte("\x00c\x00h\x00a\x00n\x00g\x00e\x00i\x00tMighty Aphrodite"), store...))
	return append(store, sum[:]...)
}

// appendUTF writes an ASCII string as java.io.DataOutput does.
func appendUTF(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}
