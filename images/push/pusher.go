package push

import (
	"sync"

	"go.podman.io/image/v5/types"

	"demesne/images"
	"demesne/images/oci"
	"demesne/images/pull"
)

// Options configure a push. Store must be set; the zero value of each other field selects its default.
type Options struct {
	Store  *images.Store
	Format Format  // of layers; default: layers keep theirs, and gzip for those that are not compressed
	Level  int     // of the compression; default: the format's
	Signer *Signer // signs the image; may be nil
	System *types.SystemContext
	pull.Transfer
}

// SystemContext returns the configuration that the flags --tls-verify and --authfile describe. verify is "", "true" or
// "false", and authFile "" stands for the usual places.
func SystemContext(verify, authFile string) *types.SystemContext {
	sys := &types.SystemContext{AuthFilePath: authFile, DockerRegistryUserAgent: userAgent}
	if authFile == "" {
		sys.AuthFilePath = pull.AuthFile()
	}
	if verify != "" {
		sys.DockerInsecureSkipTLSVerify = types.NewOptionalBool(verify == "false")
	}
	return sys
}

const userAgent = "demesne"

// pusher is a push in progress.
type pusher struct {
	Options
	copies images.Copies
	to     *registry

	mu    sync.Mutex
	repos map[oci.Digest][]string // repositories that have a blob, from the store; see sources
}

func newPusher(o Options) *pusher {
	p := &pusher{Options: o, copies: images.Copies{Store: o.Store}}
	if p.System == nil {
		p.System = SystemContext("", "")
	}
	p.Complete()
	return p
}

// document is the manifest of an image of the store.
type document struct {
	*oci.Manifest
	raw []byte
}
