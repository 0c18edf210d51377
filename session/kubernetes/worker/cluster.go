package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"demesne/internal/text"
)

// cluster is a namespace.
type cluster struct {
	http      *http.Client // client-go's, with the kubeconfig's certificates and credentials
	base      *url.URL
	host      string
	namespace string
}

// open finds the cluster.
func open(namespace string) (*cluster, error) {
	found := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{})
	cfg, err := found.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, text.Hinted(errors.New("no cluster is configured"), "KUBECONFIG or ~/.kube/config names one, as for kubectl")
	}
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	if namespace == "" {
		if namespace, _, err = found.Namespace(); err != nil {
			return nil, fmt.Errorf("read kubeconfig: %w", err)
		}
	}
	cfg.UserAgent = "demesne"
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	return &cluster{http: client, base: base, host: cfg.Host, namespace: namespace}, nil
}

// maxAnswer bounds an answer that is read whole, in bytes.
const maxAnswer = 64 << 20

// statusError is the server's own error, a Status of the API.
type statusError struct {
	code    int
	message string
}

func (e *statusError) Error() string { return e.message }

// failedWith reports whether err is the server's error with an HTTP status.
func failedWith(err error, code int) bool {
	var e *statusError
	return errors.As(err, &e) && e.code == code
}

// stream makes a request, and returns the body of its answer. The caller closes it. client-go's RESTClient would add codecs
// for all types of the API to the program.
func (c *cluster) stream(ctx context.Context, method string, body []byte, query url.Values, path ...string) (io.ReadCloser, error) {
	at := c.base.JoinPath(path...)
	at.RawQuery = query.Encode()
	r, err := http.NewRequestWithContext(ctx, method, at.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json, */*")
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode < 300 {
		return answer.Body, nil
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	if err != nil {
		return nil, err
	}
	var status struct{ Message string }
	if json.Unmarshal(said, &status) != nil || status.Message == "" {
		status.Message = fmt.Sprintf("the API server answered %s: %.200s", answer.Status, said)
	}
	return nil, &statusError{answer.StatusCode, status.Message}
}

// do makes a request, and returns its answer.
func (c *cluster) do(ctx context.Context, method string, body []byte, query url.Values, path ...string) ([]byte, error) {
	r, err := c.stream(ctx, method, body, query, path...)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, maxAnswer))
}

// explain adds to an error of the API server how to fix it.
func (c *cluster) explain(err error) error {
	var lost *url.Error
	switch {
	case err == nil || text.HintOf(err) != "":
		return err
	case errors.As(err, &lost):
		return text.Hinted(fmt.Errorf("no answer from the API server %s: %w", c.host, lost.Err), "kubectl cluster-info tests the connection")
	case failedWith(err, http.StatusUnauthorized):
		return text.Hinted(fmt.Errorf("the API server %s does not accept the credentials, which may have expired", c.host), "sign in to the cluster again; kubectl auth whoami tests it")
	case failedWith(err, http.StatusForbidden):
		return text.Hinted(err, "the role demesne of examples/kubernetes has the rights; kubectl auth can-i --list --namespace %s shows yours", c.namespace)
	}
	return err
}

func (c *cluster) path(kind string) string {
	if kind == "jobs" {
		return "/apis/batch/v1/namespaces/" + c.namespace + "/jobs"
	}
	return "/api/v1/namespaces/" + c.namespace + "/" + kind
}
