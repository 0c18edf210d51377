package executor

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	dockerspec "github.com/moby/docker-image-spec/specs-go/v1"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"demesne/build/containerfile"
	"demesne/images/archive"
	"demesne/images/compression"
	"demesne/images/imageref"
	"demesne/images/oci"
)

// configOf returns the JSON of an image's configuration.
func configOf(st *containerfile.State, layers []oci.Layer, history []ocispec.History, platform string) ([]byte, error) {
	img := dockerspec.DockerOCIImage{}
	if st != nil {
		img.Config, img.Author = st.Config, st.Author
	}
	parts := append(strings.SplitN(platform, "/", 3), "", "")
	img.OS, img.Architecture, img.Variant = parts[0], parts[1], parts[2]
	img.History = history
	if n := len(history); n > 0 {
		img.Created = history[n-1].Created
	}
	img.RootFS = ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{}}
	for _, l := range layers {
		img.RootFS.DiffIDs = append(img.RootFS.DiffIDs, digest.Digest(l.DiffID))
	}
	return json.Marshal(img)
}

// config returns the configuration of a finished stage.
func (s *stage) config() ([]byte, error) {
	return configOf(s.st, s.layers, s.history, s.Builder.plan.Platform())
}

// historyOf returns the history of a base. If the base has none, each layer gets an entry: the number of entries with a layer
// must equal the number of layers.
func historyOf(config []byte, layers int) ([]ocispec.History, error) {
	var img ocispec.Image
	if err := json.Unmarshal(config, &img); err != nil {
		return nil, fmt.Errorf("read history of the base: %w", err)
	}
	with := 0
	for _, h := range img.History {
		if !h.EmptyLayer {
			with++
		}
	}
	if with == layers {
		return img.History, nil
	}
	at := time.Unix(0, 0).UTC()
	if img.Created != nil {
		at = img.Created.UTC()
	}
	return slices.Repeat([]ocispec.History{{Created: &at}}, layers), nil // umoci wants a time
}

// publish names the image of the target.
func (b *Builder) publish(ctx context.Context, s *stage) (oci.Digest, error) {
	for _, l := range b.Labels {
		k, v, _ := strings.Cut(l, "=")
		if s.st.Config.Labels == nil {
			s.st.Config.Labels = map[string]string{}
		}
		s.st.Config.Labels[k] = v
	}
	if len(s.history) == 0 {
		s.note("FROM scratch", nil, time.Now())
	}
	s.date(time.Now().UTC())
	config, err := s.config()
	if err != nil {
		return "", err
	}
	names := b.Names
	if len(names) == 0 {
		names = []imageref.Ref{{}}
	}
	var d oci.Digest
	for _, name := range names {
		if d, err = archive.Publish(ctx, b.images.Store, name, config, s.layers); err != nil {
			return "", err
		}
	}
	if b.IIDFile != "" {
		if err := os.WriteFile(b.IIDFile, []byte(d), 0o644); err != nil {
			return "", fmt.Errorf("write digest: %w", err)
		}
	}
	return d, nil
}

// compress starts the compression of the image in the background.
func (b *Builder) compress(d oci.Digest) {
	if err := compression.Ask(b.images.Store.Dir(), b.images.Program, d); err != nil {
		b.show.note(err.Error()) // a push does the work
	}
}
