package text

import (
	"bytes"
	"encoding/pem"
)

// Certificates returns the certificates of a PEM text, in PEM, and nothing else of it: a file of authorities may also hold a
// private key or comments. One malformed certificate makes some programs reject a whole file, so it is dropped.
func Certificates(text []byte) []byte {
	var b bytes.Buffer
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" && isCertificate(block.Bytes) {
			pem.Encode(&b, &pem.Block{Type: block.Type, Bytes: block.Bytes}) // without headers; a buffer never fails
		}
	}
	return b.Bytes()
}

// The DER tags of a certificate's parts (RFC 5280, section 4.1).
const sequence, bitString = 0x30, 0x03

// isCertificate reports whether der has the outer form of a certificate: a sequence of the signed part, the algorithm
// and the signature. Package crypto/x509 would check more, and costs programs milliseconds at their start.
func isCertificate(der []byte) bool {
	body, rest, ok := element(der, sequence)
	if !ok || len(rest) > 0 {
		return false
	}
	for _, tag := range []byte{sequence, sequence, bitString} {
		if _, body, ok = element(body, tag); !ok {
			return false
		}
	}
	return len(body) == 0
}

// element splits off the first element of der, which must have this tag and a definite length.
func element(der []byte, tag byte) (body, rest []byte, ok bool) {
	if len(der) < 2 || der[0] != tag {
		return nil, nil, false
	}
	n, der := int(der[1]), der[2:]
	if n >= 0x80 {
		digits := n - 0x80
		if digits < 1 || digits > 3 || len(der) < digits {
			return nil, nil, false
		}
		n = 0
		for _, d := range der[:digits] {
			n = n<<8 | int(d)
		}
		der = der[digits:]
	}
	if n > len(der) {
		return nil, nil, false
	}
	return der[:n], der[n:], true
}
