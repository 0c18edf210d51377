package archive

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"

	"demesne/images"
	"demesne/images/imageref"
	"demesne/images/oci"
)

// maxLayer is the maximum size of an imported layer in bytes.
const maxLayer = 1 << 40

// Recognize returns the kind of the file or directory at a path: imageref.OCILayout, imageref.OCIArchive
// or imageref.DockerArchive. It returns imageref.Directory for a root file system, whether a directory
// or a tar archive.
func Recognize(file string) (imageref.Kind, error) {
	st, err := os.Stat(file)
	if err != nil {
		return "", err
	}
	if st.IsDir() {
		_, err := os.Stat(filepath.Join(file, layoutFile))
		_, err2 := os.Stat(filepath.Join(file, indexFile))
		if err == nil && err2 == nil {
			return imageref.OCILayout, nil
		}
		return imageref.Directory, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	r, _, err := decompress(f)
	if err != nil {
		return "", &InvalidError{file, err}
	}
	defer r.Close()
	kind, err := recogniseTar(tar.NewReader(r))
	if err != nil {
		return "", &InvalidError{file, err}
	}
	return kind, nil
}

// recogniseTar reads as long as all names belong to an image archive. The deciding file may be the last
// one.
func recogniseTar(r *tar.Reader) (imageref.Kind, error) {
	inArchive := regexp.MustCompile(`^(blobs(/sha256(/[0-9a-f]{64})?)?|oci-layout|(index|manifest)\.json|repositories|[0-9a-f]{64}(\.json|\.tar|/.*)?)$`)
	seen := map[string]bool{}
	for n := 0; n < maxMembers; n++ {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", err
		}
		name := path.Clean(strings.TrimPrefix(h.Name, "/"))
		if name != "." && !inArchive.MatchString(name) {
			return imageref.Directory, nil
		}
		seen[name] = true
	}
	switch {
	case seen[layoutFile] && seen[indexFile]:
		return imageref.OCIArchive, nil
	case seen[manifestFile]:
		return imageref.DockerArchive, nil
	case len(seen) == 0:
		return "", errors.New("an empty file, or not an archive")
	}
	return imageref.Directory, nil
}

// Import makes an image of one layer from a root file system and names it. It calls notice for each file
// that could not be imported.
func Import(ctx context.Context, store *images.Store, file string, ref imageref.Ref, notice func(string)) (oci.Digest, error) {
	st, err := os.Stat(file)
	if err != nil {
		return "", err
	}
	var layer oci.Layer
	if st.IsDir() {
		layer, err = importDirectory(ctx, store, file, notice)
	} else {
		layer, err = importTar(ctx, store, file)
	}
	if err != nil {
		return "", err
	}
	return name(ctx, store, ref, layer)
}

// importTar stores a tar archive unchanged. It decompresses the archive if layers do not support the
// compression. It also parses the archive, and refuses a file that is not a tar.
func importTar(ctx context.Context, store *images.Store, file string) (oci.Layer, error) {
	f, err := os.Open(file)
	if err != nil {
		return oci.Layer{}, err
	}
	defer f.Close()
	plainTar, format, err := decompress(f)
	if err != nil {
		return oci.Layer{}, &InvalidError{file, err}
	}
	defer plainTar.Close()
	if mediaTypes[format] == "" {
		l, err := putLayer(ctx, store, plainTar, plain)
		return l, tooDense(file, err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return oci.Layer{}, err
	}
	l, err := putLayer(ctx, store, f, format)
	return l, tooDense(file, err)
}

// tooDense returns an [ErrDense] with the name of the file, and any other error unchanged.
func tooDense(file string, err error) error {
	if errors.Is(err, ErrDense) {
		return &InvalidError{file, ErrDense}
	}
	return err
}

// putLayer stores a layer and computes its DiffID at the same time.
func putLayer(ctx context.Context, store *images.Store, r io.Reader, format format) (oci.Layer, error) {
	out, in := io.Pipe()
	var diffID oci.Digest
	checked := make(chan error, 1)
	go func() {
		d, err := diffIDOf(out)
		diffID = d
		out.CloseWithError(err)
		checked <- err
		close(checked)
	}()
	end := func(err error) error {
		in.CloseWithError(err)
		return <-checked // or the error of Put, if diffIDOf read it from the pipe
	}
	d, size, err := store.Put(ctx, &judged{Reader: io.TeeReader(r, in), end: sync.OnceValue(func() error { return end(nil) })}, maxLayer)
	if err != nil {
		end(err)
		return oci.Layer{}, err
	}
	return oci.Layer{Digest: d, DiffID: diffID, Size: size, MediaType: mediaTypes[format]}, nil
}

// judged returns io.EOF only if end finds no error, so that an invalid layer is not stored.
type judged struct {
	io.Reader
	end func() error
}

func (j *judged) Read(p []byte) (int, error) {
	n, err := j.Reader.Read(p)
	if err == io.EOF {
		err = cmp.Or(j.end(), err)
	}
	return n, err
}

// diffIDOf reads a layer to its end and returns its DiffID. It returns an error if the layer is not a
// tar archive.
func diffIDOf(r io.Reader) (oci.Digest, error) {
	z, _, err := decompress(r)
	if err != nil {
		return "", err
	}
	defer z.Close()
	h := sha256.New()
	hashed := io.TeeReader(z, h)
	if err := walkTar(hashed); err != nil {
		return "", err
	}
	if _, err := io.Copy(io.Discard, hashed); err != nil {
		return "", err
	}
	// Data after the compressed stream belongs to the blob. The writer blocks until it is read.
	_, err = io.Copy(io.Discard, r)
	return oci.Digest("sha256:" + hex.EncodeToString(h.Sum(nil))), err
}

// walkTar reads the headers of a tar archive, which must not be empty.
func walkTar(r io.Reader) error {
	t := tar.NewReader(r)
	for n := 0; ; n++ {
		_, err := t.Next()
		if errors.Is(err, io.EOF) && n > 0 {
			return nil
		}
		if errors.Is(err, io.EOF) {
			err = errors.New("an empty file, or not an archive")
		}
		if err != nil {
			return &InvalidError{"tar", err}
		}
	}
}

// name makes the configuration and the manifest of an image of one layer, and names it.
func name(ctx context.Context, store *images.Store, ref imageref.Ref, layer oci.Layer) (oci.Digest, error) {
	type rootfs struct {
		Type    string       `json:"type"`
		DiffIDs []oci.Digest `json:"diff_ids"`
	}
	type defaults struct {
		Env []string
		Cmd []string
	}
	config, err := json.Marshal(struct {
		Architecture string   `json:"architecture"`
		OS           string   `json:"os"`
		Config       defaults `json:"config"`
		RootFS       rootfs   `json:"rootfs"`
	}{
		runtime.GOARCH, "linux",
		defaults{[]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, []string{"/bin/sh"}},
		rootfs{"layers", []oci.Digest{layer.DiffID}},
	})
	if err != nil {
		return "", fmt.Errorf("make configuration: %w", err)
	}
	return publish(ctx, store, ref, config, []oci.Descriptor{{MediaType: layer.MediaType, Digest: layer.Digest, Size: layer.Size}})
}

func put(ctx context.Context, store *images.Store, b []byte, mediaType string) (oci.Descriptor, error) {
	d, size, err := store.Put(ctx, bytes.NewReader(b), oci.MaxConfig)
	return oci.Descriptor{MediaType: mediaType, Digest: d, Size: size}, err
}
