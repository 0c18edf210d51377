package ipc

// Bytes is text that need not be valid UTF-8, such as an argument or a path. It is encoded as base64.
type Bytes []byte

// ByteStrings converts argv or an environment to Bytes.
func ByteStrings(s []string) []Bytes {
	out := make([]Bytes, len(s))
	for i := range s {
		out[i] = Bytes(s[i])
	}
	return out
}

// Strings reverses [ByteStrings].
func Strings(b []Bytes) []string {
	out := make([]string, len(b))
	for i := range b {
		out[i] = string(b[i])
	}
	return out
}
