package runner

import (
	"errors"
	"strings"
	"time"
)

// Values that every program uses in the same way.
const (
	RemoveTime = 20 * time.Second // bounds the removal of a sandbox that no caller waits for
	AskTime    = 2 * time.Minute  // how long a connection waits for a person's answer, unless the caller names another time
	Longest    = 48 * time.Hour   // the TTL of a Persistent sandbox that names none, and the longest wait or timeout of a model

	OutputKept = 1 << 20  // bytes of a command's stream that a result repeats
	StderrKept = 16 << 10 // the same of stderr, where a model reads the result
	AnswerKept = 32 << 10 // bytes of an agent's final answer, where a model reads the result
	JobKept    = 64 << 20 // bytes that a background job keeps of each stream

	DefaultPIDs = 512     // processes and threads of a sandbox whose Limits name none
	DefaultDisk = 2 << 30 // the same for its bytes of disk

	NameMax = 63 // bytes of a sandbox's name: it can be a host name's label
)

// ErrName means that a sandbox cannot have a name.
var ErrName = errors.New("name may have letters, digits and _.-, the first a letter or digit; at most 63 bytes")

// CheckName checks the name of a sandbox. A name is also a file name and a shell word.
func CheckName(name string) error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	if name == "" || len(name) > NameMax || strings.Trim(name, letters+"_.-") != "" || !strings.Contains(letters, name[:1]) {
		return ErrName
	}
	return nil
}

// IsTarget reports whether s can mean a sandbox: an id, a name, or NAME@NAMESPACE.
func IsTarget(s string) bool {
	name, namespace, in := strings.Cut(s, "@")
	return CheckName(name) == nil && (!in || IsNamespace(namespace))
}
