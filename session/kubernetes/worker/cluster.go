package worker

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"demesne/internal/text"
)

// cluster is a namespace.
type cluster struct {
	api       *rest.RESTClient
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
	known := runtime.NewScheme()
	metav1.AddToGroupVersion(known, schema.GroupVersion{Version: "v1"})
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(known).WithoutConversion()
	cfg.QPS = -1 // a program with one request needs no brake
	cfg.UserAgent = "demesne"
	api, err := rest.UnversionedRESTClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	return &cluster{api: api, host: cfg.Host, namespace: namespace}, nil
}

// get returns the body of an answer. Only [rest.Result.Error] reads the server's own words about a failure.
func (c *cluster) get(ctx context.Context, r *rest.Request) ([]byte, error) {
	answer := r.Do(ctx)
	if err := answer.Error(); err != nil {
		return nil, err
	}
	return answer.Raw()
}

// explain adds to an error of the API server how to fix it.
func (c *cluster) explain(err error) error {
	var lost *url.Error
	switch {
	case err == nil || text.HintOf(err) != "":
		return err
	case errors.As(err, &lost):
		return text.Hinted(fmt.Errorf("no answer from the API server %s: %w", c.host, lost.Err), "kubectl cluster-info tests the connection")
	case apierrors.IsUnauthorized(err):
		return text.Hinted(fmt.Errorf("the API server %s does not accept the credentials, which may have expired", c.host), "sign in to the cluster again; kubectl auth whoami tests it")
	case apierrors.IsForbidden(err):
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
