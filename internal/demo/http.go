package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"go.opentelemetry.io/otel/propagation"

	"github.com/laneway-dev/laneway/integrations/laneotel"
	"github.com/laneway-dev/laneway/lane/laneclient"
	"github.com/laneway-dev/laneway/lane/lanehttp"
)

func serveHTTP(ctx context.Context, listener net.Listener, s *service) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		ctx, span := s.serving(r.Context(), propagation.HeaderCarrier(r.Header))
		defer span.End()
		writeReply(w, s.visit(ctx))
	})
	mux.HandleFunc("GET "+ReadyPath, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	server := &http.Server{Handler: lanehttp.Middleware(mux), ReadHeaderTimeout: callTimeout}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	err := server.Shutdown(stopping)
	if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

type httpCaller struct {
	service string
	client  *http.Client
}

func newHTTPCaller(service string, lc *laneclient.Client) *httpCaller {
	return &httpCaller{service: service, client: &http.Client{Transport: lanehttp.Transport(nil, lc, lanehttp.WithObserver(laneotel.Observe))}}
}

func (c *httpCaller) call(ctx context.Context) (Reply, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.service+"/", nil)
	if err != nil {
		return Reply{}, err
	}
	w3c().Inject(ctx, propagation.HeaderCarrier(req.Header))
	resp, err := c.client.Do(req)
	if err != nil {
		return Reply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, replyBytes))
	if err != nil {
		return Reply{}, err
	}
	if resp.StatusCode != http.StatusOK {
		return Reply{}, fmt.Errorf("%s answered %s: %s", c.service, resp.Status, body)
	}
	var reply Reply
	if err := json.Unmarshal(body, &reply); err != nil {
		return Reply{}, fmt.Errorf("read the answer of %s: %w", c.service, err)
	}
	return reply, nil
}

func (c *httpCaller) close() error {
	c.client.CloseIdleConnections()
	return nil
}
