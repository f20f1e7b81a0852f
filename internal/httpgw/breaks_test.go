package httpgw_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Whatever clients and instances do to each other in the middle of bodies, an answer is
// that of its own request, and what arrives as whole is what was sent.
func TestBodiesAmongBreaks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	instance := func(n uint64) func(net.Conn, *bufio.Reader) {
		return func(conn net.Conn, in *bufio.Reader) {
			r := rand.New(rand.NewPCG(seed, n))
			for {
				req, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				id := req.Header.Get("X-Id")
				how := r.IntN(8)
				switch how {
				case 0: // goes before it has read
					return
				case 1: // goes in the middle
					_, _ = io.CopyN(io.Discard, req.Body, 1000)
					return
				case 2: // answers before it has read, and goes on reading
					_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(id), id)
					_, _ = io.Copy(io.Discard, req.Body)
					continue
				case 3: // the same, and goes
					_, _ = fmt.Fprintf(conn, "HTTP/1.1 413 No\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(id), id)
					return
				}
				body, err := io.ReadAll(req.Body)
				if err != nil {
					return // not whole
				}
				if want := req.Header.Get("X-Length"); want != strconv.Itoa(len(body)) || !bytes.Equal(body, pattern(len(body))) {
					t.Errorf("request %s: %d bytes arrived as whole, of %s", id, len(body), want)
				}
				if how == 4 {
					_, _ = io.WriteString(conn, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")
				}
				more := ""
				if how == 5 { // says more than it was asked, at once: later it could be anything
					more = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother"
				}
				_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n%s", len(id), id, more)
			}
		}
	}
	for n := range 3 {
		w.serveRaw("api", fmt.Sprint("A", n), instance(uint64(n)))
	}
	var clients sync.WaitGroup
	for n := range 8 {
		clients.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(100+n)))
			h1, h2 := w.client(), w.h2c()
			for i := range 60 {
				size := []int{1, 100, 5000, 40_000, 200_000}[r.IntN(5)]
				body := io.Reader(bytes.NewReader(pattern(size)))
				if r.IntN(2) == 0 {
					body = io.MultiReader(bytes.NewReader(pattern(size)[:size/2]), bytes.NewReader(pattern(size)[size/2:])) // chunks
				}
				if r.IntN(4) == 0 {
					body = io.MultiReader(io.LimitReader(body, int64(size/2)), breaks{})
				}
				id := fmt.Sprintf("%d-%d", n, i)
				req := withHeaders(request(t, []string{http.MethodPost, http.MethodPut}[r.IntN(2)], "http://"+w.edge+"/", "api.lane.localhost", body),
					"X-Id", id, "X-Length", strconv.Itoa(size))
				c := h1
				if r.IntN(2) == 0 {
					c = h2
				}
				resp, text, err := try(c, req)
				switch {
				case err != nil: // by its own break, or the instance's
				case resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusRequestEntityTooLarge:
					if text != id {
						t.Errorf("request %s got the answer %q", id, text)
					}
				case resp.StatusCode != http.StatusBadGateway && resp.StatusCode != http.StatusBadRequest:
					t.Errorf("request %s got %d %s", id, resp.StatusCode, text)
				}
			}
		})
	}
	clients.Wait()
}

// breaks is a reader that fails.
type breaks struct{}

func (breaks) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }
