package operate

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// collector sends spans by OTLP over HTTP. It is a client of package otlptrace. The library's own, otlptracehttp, links gRPC,
// which would cost every frontend 0.6 ms of its start.
type collector struct {
	url     string
	header  http.Header
	zip     bool
	timeout time.Duration // of one batch, with all attempts
	client  http.Client
}

// Bounds of the pauses between attempts to send a batch, as in otlptracehttp.
const (
	minRetry, maxRetry = 5 * time.Second, 30 * time.Second
	defaultTimeout     = 10 * time.Second
)

// newCollector returns a collector for the variables of OpenTelemetry.
func newCollector(getenv func(string) string) (*collector, error) {
	get := func(name string) string {
		return cmp.Or(getenv("OTEL_EXPORTER_OTLP_TRACES_"+name), getenv("OTEL_EXPORTER_OTLP_"+name))
	}
	c := &collector{header: http.Header{}, timeout: defaultTimeout}
	c.header.Set("Content-Type", "application/x-protobuf")
	insecure, _ := strconv.ParseBool(get("INSECURE"))
	c.url = "https://localhost:4318/v1/traces"
	if insecure {
		c.url = "http://localhost:4318/v1/traces"
	}
	if all := getenv("OTEL_EXPORTER_OTLP_ENDPOINT"); all != "" {
		c.url = strings.TrimRight(all, "/") + "/v1/traces"
	}
	c.url = cmp.Or(getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), c.url)
	if u, err := url.Parse(c.url); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("endpoint %q: not a URL of a collector", c.url)
	}
	for pair := range strings.SplitSeq(get("HEADERS"), ",") {
		name, value, ok := strings.Cut(pair, "=")
		if value, err := url.PathUnescape(strings.TrimSpace(value)); ok && err == nil {
			c.header.Set(strings.TrimSpace(name), value)
		}
	}
	if c.zip = get("COMPRESSION") == "gzip"; c.zip {
		c.header.Set("Content-Encoding", "gzip")
	}
	if ms, err := strconv.Atoi(get("TIMEOUT")); err == nil && ms > 0 {
		c.timeout = time.Duration(ms) * time.Millisecond
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	c.client.Transport = transport
	var err error
	transport.TLSClientConfig, err = tlsOf(get("CERTIFICATE"), get("CLIENT_CERTIFICATE"), get("CLIENT_KEY"))
	return c, err
}

// tlsOf returns the TLS configuration for these files. Each name may be empty.
func tlsOf(authority, certificate, key string) (*tls.Config, error) {
	config := &tls.Config{}
	if authority != "" {
		text, err := os.ReadFile(authority)
		if err != nil {
			return nil, fmt.Errorf("read certificate: %w", err)
		}
		if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("certificate %q: not PEM", authority)
		}
	}
	if certificate != "" && key != "" {
		pair, err := tls.LoadX509KeyPair(certificate, key)
		if err != nil {
			return nil, fmt.Errorf("read certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// Start implements otlptrace.Client.
func (*collector) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (c *collector) Stop(context.Context) error { c.client.CloseIdleConnections(); return nil }

// UploadTraces implements otlptrace.Client. It sends a batch until the collector accepts or refuses it, or the time is over.
func (c *collector) UploadTraces(ctx context.Context, spans []*otlp.ResourceSpans) error {
	body, err := proto.Marshal(&otlp.TracesData{ResourceSpans: spans}) // encoded as an ExportTraceServiceRequest is
	if err != nil {
		return fmt.Errorf("encode spans: %w", err)
	}
	if c.zip {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		w.Write(body)
		w.Close()
		body = b.Bytes()
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	for pause := minRetry; ; pause = min(2*pause, maxRetry) {
		after, err := c.send(ctx, body)
		if err == nil || after < 0 {
			return err
		}
		select {
		case <-time.After(max(pause, after)):
		case <-ctx.Done():
			return err
		}
	}
}

// send makes one attempt. after is the shortest pause before the next one; negative means that the batch is refused.
func (c *collector) send(ctx context.Context, body []byte) (after time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return -1, err
	}
	r.Header = c.header.Clone()
	answer, err := c.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<20))
	if answer.StatusCode/100 == 2 {
		return 0, nil
	}
	err = errors.New("send spans: the collector answers " + answer.Status)
	switch answer.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
		return time.Duration(max(seconds, 0)) * time.Second, err
	}
	return -1, err
}
