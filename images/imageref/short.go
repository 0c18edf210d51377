package imageref

import "strings"

// Short returns the shortest name that Parse resolves to full.
func Short(full string) string {
	familiar := strings.TrimPrefix(strings.TrimPrefix(full, "docker.io/"), "library/")
	bare, _ := strings.CutSuffix(familiar, ":latest")
	for _, name := range append(Catalogue(), bare, familiar) {
		if ref, err := Parse(name); err == nil && ref.Full == full {
			return name
		}
	}
	return full
}
