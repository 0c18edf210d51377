package operate

import (
	"compress/gzip"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for _, p := range pairs {
			if value, ok := strings.CutPrefix(p, name+"="); ok {
				return value
			}
		}
		return ""
	}
}

// TestCollectorSettings checks where the variables of OpenTelemetry send traces to.
func TestCollectorSettings(t *testing.T) {
	for _, c := range []struct {
		env  []string
		want string
	}{
		{nil, "https://localhost:4318/v1/traces"},
		{[]string{"OTEL_EXPORTER_OTLP_INSECURE=true"}, "http://localhost:4318/v1/traces"},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://a.test/x/"}, "http://a.test/x/v1/traces"},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://a.test", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=https://b.test/y"}, "https://b.test/y"},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=a.test:4318"}, ""}, {[]string{"OTEL_EXPORTER_OTLP_CERTIFICATE=/none"}, ""},
	} {
		got, err := newCollector(env(c.env...))
		if c.want == "" && err == nil || c.want != "" && (err != nil || got.url != c.want) {
			t.Errorf("%q: %+v %v", c.env, got, err)
		}
	}
}

// TestCollectorSends checks what a collector behind TLS gets.
func TestCollectorSends(t *testing.T) {
	var got otlp.TracesData
	var header http.Header
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header = r.Header
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		body, _ := io.ReadAll(z)
		if err := proto.Unmarshal(body, &got); err != nil {
			t.Error(err)
		}
	}))
	defer s.Close()
	authority := filepath.Join(t.TempDir(), "ca.pem")
	os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600)
	c, err := newCollector(env("OTEL_EXPORTER_OTLP_ENDPOINT="+s.URL, "OTEL_EXPORTER_OTLP_COMPRESSION=gzip", "OTEL_EXPORTER_OTLP_HEADERS=a=b%20c, d = e",
		"OTEL_EXPORTER_OTLP_CERTIFICATE="+authority, "OTEL_EXPORTER_OTLP_TIMEOUT=5000"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.UploadTraces(t.Context(), []*otlp.ResourceSpans{{SchemaUrl: "x"}}); err != nil {
		t.Fatal(err)
	}
	if len(got.ResourceSpans) != 1 || got.ResourceSpans[0].SchemaUrl != "x" || header.Get("A") != "b c" || header.Get("D") != "e" || c.timeout != 5*time.Second {
		t.Errorf("%v %v", &got, header)
	}
}

// round is a transport.
type round func(*http.Request) (*http.Response, error)

func (r round) RoundTrip(q *http.Request) (*http.Response, error) { return r(q) }

// TestCollectorRetries checks which answers are tried again, and for how long.
func TestCollectorRetries(t *testing.T) {
	for _, c := range []struct {
		codes []int
		tries []time.Duration // since the first
		fails bool
	}{
		{[]int{200}, []time.Duration{0}, false},
		{[]int{503, 429, 200}, []time.Duration{0, 7 * time.Second, 17 * time.Second}, false},
		{[]int{400}, []time.Duration{0}, true},
		{[]int{502, 502, 502, 502}, []time.Duration{0, 7 * time.Second, 17 * time.Second}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			begin, codes := time.Now(), c.codes
			var tries []time.Duration
			s := &collector{url: "http://a.test", header: http.Header{}, timeout: 30 * time.Second}
			s.client.Transport = round(func(*http.Request) (*http.Response, error) {
				tries = append(tries, time.Since(begin))
				a := &http.Response{StatusCode: codes[0], Header: http.Header{"Retry-After": {"7"}}, Body: http.NoBody}
				codes = codes[1:]
				return a, nil
			})
			if err := s.UploadTraces(t.Context(), nil); (err != nil) != c.fails || !slices.Equal(tries, c.tries) {
				t.Errorf("%v: %v at %v", c.codes, err, tries)
			}
		})
	}
}
