package pull

import (
	"context"
	"errors"
	"io"
	"reflect"
	"strings"

	digest "github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/pkg/blobinfocache/none"
	"go.podman.io/image/v5/types"

	"demesne/images/oci"
)

// getBlob opens a blob at an offset. The library sends a Range request. If the registry ignores it, the
// library reads and discards the bytes before the offset.
func getBlob(ctx context.Context, src types.ImageSource, d oci.Descriptor, offset int64) (io.ReadCloser, error) {
	info := types.BlobInfo{Digest: digest.Digest(d.Digest), Size: d.Size}
	if offset > 0 {
		return getBlobAt(ctx, src, info, offset, d.Size-offset)
	}
	body, _, err := src.GetBlob(ctx, info, none.NoCache)
	return body, err
}

// getBlobAt calls GetBlobAt of the library's registry source by reflection. The method is exported, but
// a parameter is a slice of an unexported type: struct { Offset, Length uint64 }. TestResume fails if a
// new release changes any of this.
//
//	GetBlobAt(context.Context, types.BlobInfo, []chunk) (chan io.ReadCloser, chan error, error)
func getBlobAt(ctx context.Context, src types.ImageSource, info types.BlobInfo, offset, length int64) (io.ReadCloser, error) {
	method := reflect.ValueOf(src).MethodByName("GetBlobAt")
	if !method.IsValid() || method.Type().NumIn() != 3 {
		return nil, errNoResume
	}
	chunks := reflect.MakeSlice(method.Type().In(2), 1, 1)
	chunks.Index(0).FieldByName("Offset").SetUint(uint64(offset))
	chunks.Index(0).FieldByName("Length").SetUint(uint64(length))
	out := method.Call([]reflect.Value{reflect.ValueOf(ctx), reflect.ValueOf(info), chunks})
	if err, failed := out[2].Interface().(error); failed {
		return nil, err
	}
	bodies, failures := out[0].Interface().(chan io.ReadCloser), out[1].Interface().(chan error)
	return first(ctx, bodies, failures)
}

var (
	errNoResume = errors.New("the library cannot resume downloads")
	errNoRanges = errors.New("the registry sends no parts of blobs")
)

// isWhole reports whether the library cuts a part out of a whole blob, or out of several parts. Only the type of the body
// tells. TestChunked fails if a new release changes it.
func isWhole(body io.ReadCloser) bool {
	g, ok := body.(*guarded)
	return ok && strings.HasSuffix(reflect.TypeOf(g.ReadCloser).String(), ".signalCloseReader")
}

// first returns the body of the one chunk that was requested. The library closes both channels at its end.
func first(ctx context.Context, bodies chan io.ReadCloser, failures chan error) (io.ReadCloser, error) {
	for bodies != nil || failures != nil {
		select {
		case body, ok := <-bodies:
			if ok {
				go drain(bodies, failures)
				return &guarded{ReadCloser: body}, nil
			}
			bodies = nil
		case err, ok := <-failures:
			if ok {
				return nil, err
			}
			failures = nil
		case <-ctx.Done():
			go drain(bodies, failures)
			return nil, ctx.Err()
		}
	}
	return nil, io.ErrUnexpectedEOF
}

// guarded works around two bugs of the reader that the library uses when a registry ignored the range.
// On an error that reader counts bytes that it did not copy. After an error it must not be read again,
// but its Close reads. A body that is not closed ends with the context of the request.
type guarded struct {
	io.ReadCloser
	failed bool
}

func (g *guarded) Read(p []byte) (int, error) {
	n, err := g.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		g.failed = true
		return 0, err
	}
	return n, err
}

func (g *guarded) Close() error {
	if g.failed {
		return nil
	}
	return g.ReadCloser.Close()
}

// drain receives from both channels until they are closed, so that the library's goroutine can end.
func drain(bodies chan io.ReadCloser, failures chan error) {
	for bodies != nil || failures != nil {
		select {
		case body, ok := <-bodies:
			if ok {
				body.Close()
			} else {
				bodies = nil
			}
		case _, ok := <-failures:
			if !ok {
				failures = nil
			}
		}
	}
}
