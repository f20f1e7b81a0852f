package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// TracesFlush is how long the spans that are left may take to be sent when a process
// stops.
const TracesFlush = 2 * time.Second

// Traces says what a process's spans tell of it, beside what the environment says.
type Traces struct {
	Getenv   func(string) string // os.Getenv
	Service  string              // service.name; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES go before it
	Instance string              // service.instance.id, in the same way; may be empty
	Version  string              // service.version, in the same way
	Log      *slog.Logger        // is told of spans that could not be sent
}

// Open gives a tracer provider that sends spans by OTLP, as the OTEL_… variables of
// OpenTelemetry say it: where to (OTEL_EXPORTER_OTLP_ENDPOINT, and all others of the
// exporter), by which protocol (OTEL_EXPORTER_OTLP_PROTOCOL: http/protobuf, http/json or
// grpc), which (OTEL_TRACES_SAMPLER), and who sends them (OTEL_SERVICE_NAME,
// OTEL_RESOURCE_ATTRIBUTES).
//
// It gives nil where tracing is off: unless OTEL_TRACES_EXPORTER is otlp, or an endpoint
// is set and it is not none; and with OTEL_SDK_DISABLED. Nothing is made then. Spans that
// cannot be sent are dropped after some tries, and a queue of bounded length holds them
// until then. An error says what of the variables cannot be used. [CloseTraces] ends it.
//
// It changes what OpenTelemetry has one of in a process, where it tells of faults: call
// it once, from a command.
func (c Traces) Open(ctx context.Context) (*sdktrace.TracerProvider, error) {
	on, err := c.on()
	if err != nil || !on {
		return nil, err
	}
	exporter, err := c.exporter(ctx)
	if err != nil {
		return nil, err
	}
	log := c.Log
	otel.SetLogger(logr.FromSlogHandler(log.Handler()))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.WarnContext(context.WithoutCancel(ctx), "spans are lost", KeyError, err)
	}))
	about, err := c.resource(ctx)
	if err != nil { // about has what could be read
		log.WarnContext(ctx, "spans do not tell all of their sender that the environment says", KeyError, err)
	}
	return sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about)), nil
}

// CloseTraces sends what is left, for at most TracesFlush, and ends the provider.
func CloseTraces(ctx context.Context, p *sdktrace.TracerProvider) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), TracesFlush)
	defer cancel()
	if err := p.Shutdown(ctx); err != nil {
		return fmt.Errorf("send the last spans: %w", err)
	}
	return nil
}

// of is a variable for traces alone, or else the one for all signals.
func (c Traces) of(name string) string {
	if v := c.Getenv("OTEL_EXPORTER_OTLP_TRACES_" + name); v != "" {
		return v
	}
	return c.Getenv("OTEL_EXPORTER_OTLP_" + name)
}

// on reports whether spans are to be sent.
func (c Traces) on() (bool, error) {
	if strings.EqualFold(c.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	exporters := c.Getenv("OTEL_TRACES_EXPORTER")
	switch exporters {
	case "":
		return c.of("ENDPOINT") != "", nil
	case "none":
		return false, nil
	}
	for one := range strings.SplitSeq(exporters, ",") {
		if strings.TrimSpace(one) != "otlp" {
			return false, fmt.Errorf("OTEL_TRACES_EXPORTER is %q: want otlp or none", exporters)
		}
	}
	return true, nil
}

func (c Traces) exporter(ctx context.Context) (*otlptrace.Exporter, error) {
	if endpoint := c.of("ENDPOINT"); endpoint != "" && !strings.Contains(endpoint, "://") {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT is %q: want a URL, as in http://127.0.0.1:4318", endpoint)
	}
	switch protocol := c.of("PROTOCOL"); protocol {
	case "", "http/protobuf", "http/json":
		return otlptracehttp.New(ctx)
	case "grpc":
		return otlptracegrpc.New(ctx)
	default:
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL is %q: want http/protobuf, http/json or grpc", protocol)
	}
}

func (c Traces) resource(ctx context.Context) (*resource.Resource, error) {
	var about []attribute.KeyValue
	for _, kv := range [][2]string{{"service.name", c.Service}, {"service.instance.id", c.Instance}, {"service.version", c.Version}} {
		if kv[1] != "" {
			about = append(about, attribute.String(kv[0], kv[1]))
		}
	}
	r, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(about...), resource.WithFromEnv())
	if errors.Is(err, resource.ErrSchemaURLConflict) {
		err = nil // of what the SDK knows by itself
	}
	return r, err
}
