package control

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/laneway-dev/laneway/internal/telemetry"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

const (
	// askTimeout bounds what asking gateways takes, and askEach one of them.
	askTimeout = 2 * time.Second
	askEach    = time.Second
	// maxAsked is how many gateways are asked before this replica answers itself.
	maxAsked = 4
	// maxAskedBytes bounds a gateway's answer.
	maxAskedBytes = 16 << 20
	// askedHeader marks a question that comes from a control plane, so that a session
	// that names one as a gateway does not send it in circles.
	askedHeader = "Laneway-Asked"
)

// Notes of an answer that no gateway has given.
const (
	noteNoGateway = "no gateway of this machine is there to be asked: answered without a gateway's aliases and keys"
	noteUnasked   = "the gateways of this machine could not be asked: answered without a gateway's aliases and keys"
)

// newAsker makes the client that gateways are asked with: directly, at the address
// that they have given, and nowhere that they point to.
func newAsker() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy: nil, DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10,
			DialContext: (&net.Dialer{Timeout: askEach}).DialContext,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// askGateway has a gateway explain a request. Without an answer, note says why.
func (c *Control) askGateway(r *http.Request, body *laneclient.HTTPRequest) (e *laneclient.Explanation, note string) {
	addresses := c.gateways()
	if len(addresses) == 0 || r.Header.Get(askedHeader) != "" {
		return nil, noteNoGateway
	}
	question, err := json.Marshal(body)
	if err != nil {
		return nil, noteUnasked
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
	defer cancel()
	for _, address := range addresses[:min(len(addresses), maxAsked)] {
		if e, err = c.ask(ctx, address, question); err == nil {
			return e, ""
		}
		c.log.DebugContext(ctx, "gateway did not explain", telemetry.KeyAddress, address, telemetry.KeyError, err)
	}
	return nil, noteUnasked
}

func (c *Control) ask(ctx context.Context, address string, question []byte) (*laneclient.Explanation, error) {
	ctx, cancel := context.WithTimeout(ctx, askEach)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/v1/explain/http", bytes.NewReader(question))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(askedHeader, "1")
	resp, err := c.asker.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("answered %s", resp.Status)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAskedBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxAskedBytes {
		return nil, fmt.Errorf("answered more than %d bytes", maxAskedBytes)
	}
	e := &laneclient.Explanation{}
	if err := json.Unmarshal(text, e); err != nil {
		return nil, fmt.Errorf("read its answer: %w", err)
	}
	return e, nil
}

// gateways lists the admin addresses of live gateways that this process may ask,
// the newest first. They are those on loopback of this machine: an address comes
// from whoever opened the session, and is to lead nowhere else.
func (c *Control) gateways() []string {
	host, err := os.Hostname()
	if err != nil {
		return nil
	}
	items, _, _ := c.cache.list(laneclient.KindSessions, 0, func(it *item) bool {
		s, _ := it.obj.(*laneclient.Session)
		return s != nil && s.Role == laneclient.RoleGateway && s.Host == host && onLoopback(s.Admin)
	})
	slices.SortStableFunc(items, func(a, b *item) int {
		x, _ := a.obj.(*laneclient.Session)
		y, _ := b.obj.(*laneclient.Session)
		return y.Since.Compare(x.Since)
	})
	addresses := make([]string, len(items))
	for n, it := range items {
		s, _ := it.obj.(*laneclient.Session)
		addresses[n] = s.Admin
	}
	return slices.Compact(addresses)
}

func onLoopback(address string) bool {
	to, err := netip.ParseAddrPort(address)
	return err == nil && to.Addr().Unmap().IsLoopback()
}
