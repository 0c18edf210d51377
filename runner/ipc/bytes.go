package ipc

// Bytes is text that need not be UTF-8 (an argument, a path): it travels as base64.
type Bytes []byte

// ByteStrings converts argv or an environment for travelling.
func ByteStrings(s []string) []Bytes {
	out := make([]Bytes, len(s))
	for i := range s {
		out[i] = Bytes(s[i])
	}
	return out
}

// Strings is the way back.
func Strings(b []Bytes) []string {
	out := make([]string, len(b))
	for i := range b {
		out[i] = string(b[i])
	}
	return out
}
