package operate

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"demesne/session/events"
)

// traces makes spans of requests and commands. The zero value, and nil, make none.
type traces struct {
	tracer   trace.Tracer
	provider *sdk.TracerProvider
	incoming propagation.TraceContext

	mu      sync.Mutex
	running map[string]started // commands, by the run of their events
}

// started is a command whose end is not known.
type started struct {
	ctx context.Context
	at  time.Time
	cmd string
}

// maxStarted bounds the commands that are remembered.
const maxStarted = 10_000

// newTraces returns a maker of spans if the environment names a place to send them to, by OTLP over HTTP. The variables are
// OpenTelemetry's.
func newTraces(ctx context.Context, getenv func(string) string, version string, to *log.Logger) (*traces, error) {
	protocol := cmp.Or(getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), getenv("OTEL_EXPORTER_OTLP_PROTOCOL"), "http/protobuf")
	exporters := strings.Split(getenv("OTEL_TRACES_EXPORTER"), ",")
	wanted := getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "" || slices.Contains(exporters, "otlp")
	switch {
	case strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true"), slices.Contains(exporters, "none"), !wanted:
		return nil, nil
	case protocol != "http/protobuf":
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL %q: not http/protobuf", protocol)
	case exporters[0] != "" && !slices.Contains(exporters, "otlp"):
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER %q: not otlp or none", getenv("OTEL_TRACES_EXPORTER"))
	}
	place, err := newCollector(getenv)
	if err != nil {
		return nil, fmt.Errorf("open traces: %w", err)
	}
	exporter, err := otlptrace.New(ctx, place)
	if err != nil {
		return nil, fmt.Errorf("open traces: %w", err)
	}
	about, err := resource.Merge(resource.NewSchemaless(attribute.String("service.name", "demesne-server"), attribute.String("service.version", version)),
		resource.Environment())
	if err != nil {
		return nil, fmt.Errorf("open traces: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { to.Printf("traces: %v", err) }))
	t := &traces{provider: sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about)), running: map[string]started{}}
	t.tracer = t.provider.Tracer("demesne/server")
	return t, nil
}

// close sends the spans that were made.
func (t *traces) close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	t.provider.Shutdown(ctx)
}

// begin begins the span of a request, below its client's span. end ends it.
func (t *traces) begin(r *http.Request) (_ *http.Request, end func(route string, status int)) {
	if t == nil {
		return r, func(string, int) {}
	}
	ctx := t.incoming.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, span := t.tracer.Start(ctx, method(r.Method), trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("http.request.method", method(r.Method)), attribute.String("url.path", r.URL.Path)))
	return r.WithContext(ctx), func(route string, status int) {
		span.SetName(method(r.Method) + " " + strings.TrimPrefix(route, r.Method+" "))
		span.SetAttributes(attribute.String("http.route", route), attribute.Int("http.response.status_code", status))
		if status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, http.StatusText(status))
		}
		span.End()
	}
}

// method is the value of a label for the method of a request, which may be any text.
func method(s string) string {
	switch s {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return s
	}
	return "other"
}

// event makes a span of a command, from its start to its end, and notes other events in the span of their request. No
// argument of a command is in a span, only its program.
func (t *traces) event(ctx context.Context, e *events.Event) {
	if t == nil {
		return
	}
	switch e.Type {
	case events.ExecutionStarted:
		t.mu.Lock()
		defer t.mu.Unlock()
		if len(t.running) >= maxStarted {
			clear(t.running)
		}
		program, _, _ := strings.Cut(e.Detail["command"], " ")
		t.running[e.Run] = started{trace.ContextWithSpanContext(context.Background(), trace.SpanContextFromContext(ctx)), time.Now(), program}
	case events.ExecutionCompleted, events.ExecutionFailed, events.ExecutionTimeout:
		t.ended(e)
	default:
		trace.SpanFromContext(ctx).AddEvent(string(e.Type), trace.WithAttributes(attributes(e)...))
	}
}

func (t *traces) ended(e *events.Event) {
	t.mu.Lock()
	s, ok := t.running[e.Run]
	delete(t.running, e.Run)
	t.mu.Unlock()
	if !ok {
		return
	}
	_, span := t.tracer.Start(s.ctx, "exec "+s.cmd, trace.WithTimestamp(s.at), trace.WithAttributes(attributes(e)...))
	if code, err := strconv.Atoi(e.Detail["exit_code"]); err == nil {
		span.SetAttributes(attribute.Int("process.exit.code", code))
	}
	if e.Type != events.ExecutionCompleted {
		span.SetStatus(codes.Error, e.Detail["reason"])
	}
	span.End()
}

func attributes(e *events.Event) []attribute.KeyValue {
	all := []attribute.KeyValue{attribute.String("demesne.event", string(e.Type))}
	for name, v := range map[string]string{
		"demesne.sandbox": e.Sandbox, "demesne.run": e.Run, "demesne.namespace": e.Namespace, "demesne.caller": e.Caller,
		"demesne.reason": e.Detail["reason"], "demesne.image": e.Detail["image"], "demesne.name": e.Detail["name"],
	} {
		if v != "" {
			all = append(all, attribute.String(name, v))
		}
	}
	return all
}
