package control_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/internal/control"
	"github.com/laneway-dev/laneway/internal/store/mem"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// TestHostOnLoopback: a page whose name resolves to this machine reads and writes
// nothing; what people and programs call it by is answered.
func TestHostOnLoopback(t *testing.T) {
	t.Parallel()
	s := mem.New()
	defer s.Close()
	r := startOver(t, s, control.Config{Hosts: []string{"Control.Example.com", "192.0.2.7"}})
	defer r.stop()
	srv := httptest.NewServer(r.c.Handler())
	defer srv.Close()
	r.base, r.http = srv.URL, srv.Client()
	ask := func(method, path, host string, headers ...string) answer {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, srv.URL+path, strings.NewReader(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		for n := 0; n+1 < len(headers); n += 2 {
			req.Header.Set(headers[n], headers[n+1])
		}
		return r.send(req)
	}
	for _, host := range []string{
		"", "localhost", "LocalHost:7700", "localhost.", "127.0.0.1", "127.0.0.1:7700", "127.8.9.1:1", "[::1]:7700", "[::1]", "[::ffff:127.0.0.1]:7700",
		"control.example.com", "CONTROL.example.com.:7700", "192.0.2.7:7700",
	} {
		if a := ask(http.MethodGet, "/v1/lanes", host); a.status != http.StatusOK {
			t.Errorf("GET by the host %q: %d %s", host, a.status, a.body)
		}
		if a := ask(http.MethodPut, "/v1/services/order", host); a.status/100 != 2 {
			t.Errorf("PUT by the host %q: %d %s", host, a.status, a.body)
		}
	}
	for _, host := range []string{
		"evil.example", "evil.example:7700", "localhost.evil.example", "127.0.0.1.evil.example", "192.0.2.8", "10.0.0.1:7700", "[2001:db8::1]:7700",
		"xlocalhost", "example.com", "sub.control.example.com", "0.0.0.0:7700", "2130706433",
	} {
		for _, c := range [][2]string{
			{http.MethodGet, "/v1/lanes"},
			{http.MethodGet, "/v1/watch?select=lanes"},
			{http.MethodPut, "/v1/services/order"},
			{http.MethodGet, "/metrics"},
			{http.MethodGet, "/nowhere"},
		} {
			a := ask(c[0], c[1], host, "Origin", "http://"+host, "Sec-Fetch-Site", "same-origin")
			if a.status != http.StatusMisdirectedRequest {
				t.Errorf("%s %s by the host %q: %d %s", c[0], c[1], host, a.status, a.body)
				continue
			}
			if p := a.problem(t); !strings.Contains(p.Detail, "control_hosts") || !strings.Contains(p.Detail, "localhost") {
				t.Errorf("the answer does not say what to do: %s", p.Detail)
			}
		}
	}
	// In process there is no browser, and no host to speak of.
	r.base, r.http = "http://whatever", &http.Client{Transport: laneclient.InMemory(r.c.Handler())}
	r.must(http.StatusOK, nil, "GET", "/v1/lanes", nil)
	// Beyond loopback others decide by which name it is found.
	req := httptest.NewRequestWithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}),
		http.MethodGet, "http://evil.example/v1/lanes", http.NoBody)
	rec := httptest.NewRecorder()
	r.c.Handler().ServeHTTP(rec, req)
	if rec.Code != http.StatusOK {
		t.Errorf("beyond loopback: %d", rec.Code)
	}
}

func TestHostsAreChecked(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "http://control.example.com", "control.example.com:7700", "a/b", "a b", "[::1]", strings.Repeat("a", 254)} {
		if control.CheckHost(bad) == nil {
			t.Errorf("%q is taken for a host", bad)
		}
		s := mem.New()
		if _, err := control.New(control.Config{Store: s, Hosts: []string{bad}}); err == nil {
			t.Errorf("a Config with the host %q is accepted", bad)
		}
		_ = s.Close()
	}
	for _, good := range []string{"control", "control.example.com", "::1", "192.0.2.1", "a_b-c.d"} {
		if err := control.CheckHost(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
}

// TestCrossOrigin: a browser's page of another origin writes nothing.
func TestCrossOrigin(t *testing.T) {
	t.Parallel()
	s := mem.New()
	defer s.Close()
	r := startOver(t, s, control.Config{})
	defer r.stop()
	srv := httptest.NewServer(r.c.Handler())
	defer srv.Close()
	r.base, r.http = srv.URL, srv.Client()
	own := srv.URL
	for _, c := range []struct {
		origin, site string
		allowed      bool
	}{
		{"", "", true}, // a program
		{own, "", true},
		{own, "same-origin", true},
		{"", "none", true}, // typed by a person
		{"http://evil.example", "", false},
		{"http://evil.example", "cross-site", false},
		{"http://127.0.0.1:1", "", false}, // another port is another origin
		{"http://localhost:1", "same-site", false},
		{"null", "", false}, // a frame without an origin
		{"null", "cross-site", false},
		{"", "cross-site", false},
	} {
		for _, w := range [][3]string{
			{"PUT", "/v1/services/order", `{}`}, {"POST", "/v1/sessions", `{}`}, {"DELETE", "/v1/services/order", ""}, {"POST", "/v1/lanes", `{"name":"green"}`},
		} {
			var headers []string
			if c.origin != "" {
				headers = append(headers, "Origin", c.origin)
			}
			if c.site != "" {
				headers = append(headers, "Sec-Fetch-Site", c.site)
			}
			a := r.do(w[0], w[1], w[2], headers...)
			if (a.status != http.StatusForbidden) != c.allowed {
				t.Errorf("%s %s from the origin %q (%s): %d %s", w[0], w[1], c.origin, c.site, a.status, a.body)
			}
		}
	}
}
