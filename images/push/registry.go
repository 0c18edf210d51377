package push

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/docker/config"
	"go.podman.io/image/v5/pkg/sysregistriesv2"
	"go.podman.io/image/v5/pkg/tlsclientconfig"
	"go.podman.io/image/v5/types"
	"go.podman.io/storage/pkg/configfile"

	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/images/pull"
)

// registry is a repository of a registry, to which this program may write.
type registry struct {
	name string // of the repository, with the registry's: "registry.test/o/n"
	path string // of the repository: "o/n"
	base *url.URL
	http *http.Client
	auth *authorizer
	idle time.Duration // wait for an answer
}

// dial finds out how to talk to the registry of a repository. Mirrors are for pulls: a push goes to the registry in the name.
func (p *pusher) dial(ctx context.Context, named reference.Named) (*registry, error) {
	conf, err := sysregistriesv2.FindRegistry(p.System, named.Name())
	if err != nil {
		return nil, errorf(events.CodeInvalid, "read registries.conf: %w", err)
	}
	if conf != nil && conf.Blocked {
		return nil, errorf(events.CodeInvalid, "registry %q: blocked in registries.conf", conf.Prefix)
	}
	insecure := conf != nil && conf.Insecure
	if p.System.DockerInsecureSkipTLSVerify != types.OptionalBoolUndefined {
		insecure = p.System.DockerInsecureSkipTLSVerify == types.OptionalBoolTrue
	}
	creds, err := config.GetCredentialsForRef(p.System, named)
	if err != nil {
		return nil, errorf(events.CodeDenied, "read credentials: %w", err)
	}
	domain := reference.Domain(named)
	transport, err := transportFor(p.System, domain, insecure)
	if err != nil {
		return nil, err
	}
	r := &registry{name: named.Name(), path: reference.Path(named), http: &http.Client{Transport: transport}, idle: p.Idle}
	r.base = &url.URL{Scheme: "https", Host: imageref.ServerOf(domain), Path: "/v2/"}
	r.http.CheckRedirect = r.redirect
	r.auth = &authorizer{creds: creds, registry: r.base, report: p.Report, tokens: map[string]token{}}
	err = p.retry(ctx, "", r.ping)
	if insecure && err != nil && ctx.Err() == nil && pull.PlainHTTP(err) {
		r.base.Scheme = "http"
		err = p.retry(ctx, "", r.ping)
	}
	if err != nil {
		return nil, fmt.Errorf("reach registry %q: %w", domain, err)
	}
	return r, nil
}

// redirect refuses to send credentials on without TLS, and an identity token to another site. net/http keeps the password of
// a request that is redirected to the same host or below it, and sends a body anywhere.
func (r *registry) redirect(req *http.Request, via []*http.Request) error {
	token := req.Body != nil && req.Header.Get("Content-Type") == formType
	if token || req.Header.Get("Authorization") != "" {
		foreign, err := pull.Realm(r.base.Host, r.base.Scheme == "http", req.URL)
		if err == nil && token && foreign {
			err = errorf(events.CodeDenied, "the token server redirects to another site: %.100q", req.URL.Host)
		}
		if err != nil {
			return err
		}
	}
	if len(via) >= maxRedirects {
		return errors.New("too many redirects")
	}
	return nil
}

// transportFor returns a transport with the certificates that certs.d has for the registry.
func transportFor(sys *types.SystemContext, domain string, insecure bool) (*http.Transport, error) {
	t := tlsclientconfig.NewTransport()
	t.WriteBufferSize = 256 << 10
	t.MaxIdleConnsPerHost = 8
	t.TLSClientConfig = &tls.Config{InsecureSkipVerify: insecure} //nolint:gosec // the user asked for that
	dirs, err := certDirs(sys)
	if err != nil {
		return nil, errorf(events.CodeInvalid, "find certs.d: %w", err)
	}
	for _, dir := range dirs {
		dir = filepath.Join(dir, domain)
		if _, err := os.Stat(dir); err != nil {
			continue
		}
		if err := tlsclientconfig.SetupCertificates(dir, t.TLSClientConfig); err != nil {
			return nil, errorf(events.CodeInvalid, "read certificates: %w", err)
		}
		break
	}
	return t, nil
}

// certDirs returns the directories that may have a directory for a registry. The first one that contains such a directory is
// used.
func certDirs(sys *types.SystemContext) ([]string, error) {
	if sys.DockerPerHostCertDirPath != "" {
		return []string{sys.DockerPerHostCertDirPath}, nil
	}
	root := sys.RootForImplicitAbsolutePaths
	paths, err := configfile.GetSearchPaths(&configfile.File{
		Name: "certs", Extension: "d", DoNotUseExtensionForConfigName: true, UserId: os.Getuid(), RootForImplicitAbsolutePaths: root,
	})
	if err != nil {
		return nil, err
	}
	return append(paths.DropInDirectories, filepath.Join(root, "/etc/docker/certs.d")), nil
}

// maxRedirects is how many redirects a request may follow, as in net/http.
const maxRedirects = 10

// ping asks whether a registry answers, and which authentication it wants.
func (r *registry) ping(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.base.String(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", userAgent)
	resp, err := r.answer(req)
	if err != nil {
		return err
	}
	if resp.StatusCode == http.StatusUnauthorized {
		r.auth.challenge, err = parseChallenge(resp.Header)
		return errors.Join(err, resp.Body.Close())
	}
	err = accept(resp, http.StatusOK)
	if status, ok := errors.AsType[*statusError](err); ok && status.StatusCode == http.StatusNotFound {
		return errorf(events.CodeNoImage, "no registry answers there: %w", err)
	}
	return err
}

// url returns the address of a part of the repository.
func (r *registry) url(part string) *url.URL {
	return r.base.JoinPath(r.path, part)
}

// do sends a request with authorization for the repositories: this one to write, and others to read. A body that is not
// nil is sent once: after a 401 the caller has to begin again, with a new token.
func (r *registry) do(ctx context.Context, method string, to *url.URL, header http.Header, body io.Reader, length int64, others ...string) (*http.Response, error) {
	for again := false; ; again = true {
		req, err := http.NewRequestWithContext(ctx, method, to.String(), body)
		if err != nil {
			return nil, err
		}
		for k, v := range header {
			req.Header[k] = v
		}
		req.Header.Set("User-Agent", userAgent)
		if body != nil && length >= 0 {
			req.ContentLength = length
		}
		scopes := r.scopes(others)
		if to.Host == r.base.Host { // no storage behind the registry gets the credentials
			if err := r.auth.authorize(req, scopes, r.answer); err != nil {
				return nil, err
			}
		}
		send := r.answer
		if method == http.MethodPatch || method == http.MethodPut && body == nil {
			send = r.http.Do // an upload and its end: the caller watches them
		}
		resp, err := send(req)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode != http.StatusUnauthorized || again || !r.auth.forget(req, scopes) {
			return resp, nil
		}
		if body != nil {
			return nil, fmt.Errorf("%w: %w", errStale, refused(resp))
		}
		resp.Body.Close()
	}
}

// answer sends a request, and gives up when the registry is silent for too long.
func (r *registry) answer(req *http.Request) (*http.Response, error) {
	ctx, w := watch(req.Context(), r.idle)
	resp, err := r.http.Do(req.WithContext(ctx))
	if err != nil {
		err = w.explain(ctx, err)
		w.done()
		return nil, err
	}
	resp.Body = &watchedBody{resp.Body, w}
	return resp, nil
}

// watchedBody ends the watcher of a request when it is closed.
type watchedBody struct {
	io.ReadCloser
	w *watcher
}

func (b *watchedBody) Close() error {
	defer b.w.done()
	return b.ReadCloser.Close()
}

func (r *registry) scopes(others []string) []string {
	scopes := []string{"repository:" + r.path + ":pull,push"}
	for _, path := range others {
		scopes = append(scopes, "repository:"+path+":pull")
	}
	return scopes
}

// has reports whether a repository has a blob: this one, or another of the registry.
func (r *registry) has(ctx context.Context, d oci.Digest, path string) (bool, error) {
	var others []string
	if path != r.path {
		others = []string{path}
	}
	resp, err := r.do(ctx, http.MethodHead, r.base.JoinPath(path, "blobs", string(d)), nil, nil, 0, others...)
	if err != nil {
		return false, err
	}
	if resp.StatusCode == http.StatusNotFound {
		return false, resp.Body.Close()
	}
	return true, accept(resp, http.StatusOK)
}

// putManifest uploads a manifest with a tag, or if tag is "" only by its digest.
func (r *registry) putManifest(ctx context.Context, tag, mediaType string, raw []byte) error {
	resp, err := r.do(ctx, http.MethodPut, r.url("manifests/"+tag), http.Header{"Content-Type": {mediaType}}, bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		return err
	}
	got := resp.Header.Get("Docker-Content-Digest")
	if err := accept(resp, http.StatusCreated); err != nil {
		return err
	}
	if want := oci.DigestOf(raw); got != "" && got != string(want) {
		return errorf(events.CodeCorrupt, "the registry stored manifest %s as %q", want, oci.Clip(got))
	}
	return nil
}

// getManifest reads the manifest of a tag. It returns nil if the tag does not exist.
func (r *registry) getManifest(ctx context.Context, tag string) ([]byte, error) {
	resp, err := r.do(ctx, http.MethodGet, r.url("manifests/"+tag), http.Header{"Accept": {oci.TypeOCIManifest}}, nil, 0)
	if err != nil {
		return nil, err
	}
	switch resp.StatusCode {
	case http.StatusNotFound:
		return nil, resp.Body.Close()
	case http.StatusOK:
		defer resp.Body.Close()
		return readAtMost(resp.Body, oci.MaxManifest)
	}
	return nil, refused(resp)
}
