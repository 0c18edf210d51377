package api

import "strconv"

// FileLayer names the descriptor of a layer call to which the layer is written.
const FileLayer = "layer"

// Descriptor names of a create call. FileSame prefixes a file as the caller opened it. The runner opens the path
// again in its own mount namespace, where it may bind it, and accepts only the same inode. FileMount prefixes a
// detached mount made by real root, for files that a runner under a high uid could not reach.
const (
	FileSame  = "same."
	FileMount = "mount."

	SourceInit      = "init"
	SourceOut       = "out"
	SourceWorkspace = "workspace"
	SourceRootfs    = "rootfs"

	FileLog   = "egress-log" // open for writing
	FileProxy = "proxy"      // demesne-proxy, for a spec with an Egress; a runner executes the first one it receives
)

// SourceInput returns the name of the i-th input.
func SourceInput(i int) string { return "in." + strconv.Itoa(i) }

// FileRecord returns the name of the file that receives the usage records of the i-th route, open for writing. Routes
// with the same file share the descriptor of the first of them.
func FileRecord(i int) string { return "record." + strconv.Itoa(i) }

// FileGate returns the name of the socket that is the Gate of the i-th route, in a create call and in a serve call to the proxy.
func FileGate(i int) string { return "gate." + strconv.Itoa(i) }

// SourceMount returns the name of the i-th of Spec.Mounts.
func SourceMount(i int) string { return "mount." + strconv.Itoa(i) }

// SourceUpper returns the name of the upper of the i-th of Spec.Mounts.
func SourceUpper(i int) string { return "upper." + strconv.Itoa(i) }

// FileListen returns the name of the listener of a port of Egress.Listen, in the reply to a create or run call.
func FileListen(port uint16) string { return "listen." + strconv.Itoa(int(port)) }

// FilePort returns the name of the listener of the i-th published port.
func FilePort(i int) string { return "port." + strconv.Itoa(i) }
