package archive

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"demesne/images"
	"demesne/images/imageref"
	"demesne/images/oci"
)

// Commit makes an image from base with layers on top, and names it. Each layer is a file with a tar
// archive. The configuration of base applies where change does not override it.
func Commit(ctx context.Context, store *images.Store, base *images.Image, layers []string, change images.Change, ref imageref.Ref) (oci.Digest, error) {
	s := &saver{ctx: ctx, store: store, img: base}
	_, m, err := s.manifest()
	if err != nil {
		return "", err
	}
	all := make([]oci.Descriptor, len(m.Layers))
	for i, l := range m.Layers {
		all[i] = oci.Descriptor{MediaType: ociType(l.MediaType), Digest: l.Digest, Size: l.Size}
	}
	var added []oci.Layer
	for _, file := range layers {
		l, err := importTar(ctx, store, file)
		if err != nil {
			return "", err
		}
		added = append(added, l)
		all = append(all, oci.Descriptor{MediaType: l.MediaType, Digest: l.Digest, Size: l.Size})
	}
	raw, err := readConfig(ctx, store, m.Config)
	if err != nil {
		return "", err
	}
	if raw, err = committed(raw, added, change, time.Now()); err != nil {
		return "", fmt.Errorf("change configuration: %w", err)
	}
	return publish(ctx, store, ref, raw, all)
}

// publish stores a configuration and a manifest, and names the image.
func publish(ctx context.Context, store *images.Store, ref imageref.Ref, config []byte, layers []oci.Descriptor) (oci.Digest, error) {
	c, err := put(ctx, store, config, typeConfig)
	if err != nil {
		return "", err
	}
	manifest, err := marshalManifest(c, layers)
	if err != nil {
		return "", err
	}
	m, err := put(ctx, store, manifest, oci.TypeOCIManifest)
	if err != nil {
		return "", err
	}
	_, err = store.Add(ctx, images.Record{Ref: ref, Manifest: m})
	return m.Digest, err
}

// ociType returns the OCI media type for a Docker layer type. The bytes of the layer are the same.
func ociType(mediaType string) string {
	switch mediaType {
	case "application/vnd.docker.image.rootfs.diff.tar":
		return mediaTypes[plain]
	case "application/vnd.docker.image.rootfs.diff.tar.gzip":
		return mediaTypes[gzipped]
	}
	return mediaType
}

func readConfig(ctx context.Context, store *images.Store, d oci.Descriptor) ([]byte, error) {
	b, err := openBlob(ctx, store, d.Digest)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	raw, err := io.ReadAll(io.LimitReader(b, oci.MaxConfig))
	if err != nil {
		return nil, err
	}
	return raw, b.verify()
}

// committed returns a configuration with the added layers and the change applied. It keeps all other
// fields, known or unknown.
func committed(raw []byte, added []oci.Layer, change images.Change, now time.Time) ([]byte, error) {
	var whole struct {
		Config  fields `json:"config"`
		History []any  `json:"history"`
		RootFS  struct {
			Type    string       `json:"type"`
			DiffIDs []oci.Digest `json:"diff_ids"`
		} `json:"rootfs"`
	}
	all := fields{}
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, &whole); err != nil {
		return nil, err
	}
	for _, l := range added {
		whole.RootFS.DiffIDs = append(whole.RootFS.DiffIDs, l.DiffID)
	}
	if whole.History != nil { // a history has an entry for each layer, so extend it only if present
		for n := range max(len(added), 1) {
			whole.History = append(whole.History, map[string]any{"created": now.UTC(), "created_by": "demesne commit", "empty_layer": n >= len(added)})
		}
		all.set("history", whole.History)
	}
	if whole.Config == nil {
		whole.Config = fields{}
	}
	if err := whole.Config.change(change); err != nil {
		return nil, err
	}
	all.set("config", whole.Config)
	all.set("rootfs", whole.RootFS)
	all.set("created", now.UTC())
	return json.Marshal(all)
}

// fields is a JSON object with fields that this package does not know.
type fields map[string]json.RawMessage

// set ignores the encoding error: v is always encodable.
func (f fields) set(name string, v any) {
	text, err := json.Marshal(v)
	if err == nil {
		f[name] = text
	}
}

func (f fields) change(c images.Change) error {
	if len(c.Env) > 0 {
		var env []string
		if text := f["Env"]; text != nil {
			if err := json.Unmarshal(text, &env); err != nil {
				return err
			}
		}
		f.set("Env", merged(env, c.Env))
	}
	if c.Entrypoint != nil {
		f.set("Entrypoint", *c.Entrypoint)
		f.set("Cmd", []string{}) // it was written for the base's entrypoint
	}
	if c.Cmd != nil {
		f.set("Cmd", *c.Cmd)
	}
	if c.WorkingDir != "" {
		f.set("WorkingDir", c.WorkingDir)
	}
	if c.User != "" {
		f.set("User", c.User)
	}
	return nil
}

// merged returns each variable once, with its last value, in order of first appearance.
func merged(env, more []string) []string {
	at := map[string]int{}
	var all []string
	for _, e := range append(env[:len(env):len(env)], more...) {
		name, _, _ := strings.Cut(e, "=")
		if i, ok := at[name]; ok {
			all[i] = e
			continue
		}
		at[name] = len(all)
		all = append(all, e)
	}
	return all
}
