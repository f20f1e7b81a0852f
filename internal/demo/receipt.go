package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"time"
)

// Receipt is what a consumer says of a message as soon as it was handed one.
type Receipt struct {
	ID          string `json:"id"` // of the message
	Visit       Visit  `json:"visit"`
	Partition   int    `json:"partition"`
	Offset      int64  `json:"offset"`
	Redelivered bool   `json:"redelivered,omitempty"` // it may have been handed out before
}

const (
	receiptBytes   = 64 << 10
	receiptTries   = 3
	receiptTimeout = time.Second
)

// Receipts listens on a free port of this machine for what consumers post.
type Receipts struct {
	url    string
	server *http.Server
	done   chan error
}

// ListenReceipts begins to listen. take is called with each receipt, before its sender goes
// on, and from several goroutines at once.
func ListenReceipts(ctx context.Context, take func(Receipt)) (*Receipts, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{$}", func(w http.ResponseWriter, r *http.Request) {
		var in Receipt
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, receiptBytes)).Decode(&in); err != nil {
			http.Error(w, "want a receipt in JSON", http.StatusBadRequest)
			return
		}
		take(in)
		w.WriteHeader(http.StatusNoContent)
	})
	r := &Receipts{
		url:    "http://" + l.Addr().String() + "/",
		server: &http.Server{Handler: mux, ReadHeaderTimeout: receiptTimeout},
		done:   make(chan error, 1),
	}
	go func() { r.done <- r.server.Serve(l) }()
	return r, nil
}

// URL is where receipts are posted to.
func (r *Receipts) URL() string { return r.url }

// Close stops listening.
func (r *Receipts) Close() error {
	err := r.server.Close()
	if ended := <-r.done; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

// receiptSender posts receipts.
type receiptSender struct{ client *http.Client }

func newReceiptSender() *receiptSender {
	return &receiptSender{client: &http.Client{Timeout: receiptTimeout, Transport: &http.Transport{Proxy: nil, MaxIdleConnsPerHost: 8}}}
}

func (s *receiptSender) close() { s.client.CloseIdleConnections() }

// send posts a receipt. Where nobody takes it, whoever sent the message does not wait any
// more.
func (s *receiptSender) send(ctx context.Context, to string, r Receipt) {
	if !loopbackURL(to) {
		return
	}
	body, err := json.Marshal(r)
	if err != nil {
		return
	}
	for range receiptTries {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
		if err != nil {
			return
		}
		resp, err := s.client.Do(req)
		if err != nil {
			continue
		}
		_ = resp.Body.Close()
		return
	}
}
