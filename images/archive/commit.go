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

// Commit makes an image of another one and of layers over it, files each with a tar, and names it. What the
// configuration of the other one says stays, where the change does not say otherwise.
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

// publish stores a configuration and the manifest of an image, and names that.
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

// ociType is what an OCI manifest calls a layer that Docker's calls otherwise: the same bytes.
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

// committed is a configuration with more layers, and changed. What it says besides stays, known or not.
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
	if whole.History != nil { // it has an entry for each layer, or is not there
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

// fields is a JSON object of which not everything is known.
type fields map[string]json.RawMessage

// set never fails: what is given can be encoded.
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
		f.set("Cmd", []string{}) // it was for the other one
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

// merged has each name once, with its last value, in the order of first appearance.
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
