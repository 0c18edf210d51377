package api

import "strconv"

// FileLayer is the descriptor of a layer call: what the layer is written to.
const FileLayer = "layer"

// Descriptor names of a create call. FileSame is the file as the caller opened it:
// the runner opens the path again in its own mount namespace, where it may bind it,
// and refuses anything but the same inode. FileMount is a detached mount instead,
// made by real root, whose files a runner under a high uid could not reach.
const (
	FileSame  = "same."
	FileMount = "mount."

	SourceInit      = "init"
	SourceOut       = "out"
	SourceWorkspace = "workspace"
	SourceRootfs    = "rootfs"

	FileLog   = "egress-log" // open for writing
	FileProxy = "proxy"      // demesne-proxy, for who has an Egress: the first of a runner is the one it executes
)

// SourceInput names the i-th input.
func SourceInput(i int) string { return "in." + strconv.Itoa(i) }

// FilePort names the listener of the i-th port to publish.
func FilePort(i int) string { return "port." + strconv.Itoa(i) }
