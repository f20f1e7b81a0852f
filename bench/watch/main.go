// Command watch measures how many writes a second the control plane takes, and how soon
// a client that reads sees one, while others watch: none, some that never read, some
// that read all that changes, and some that read and select something else. The registry
// is in memory, so that its disk does not hide what watches cost. Writers and the
// control plane are one process, those who watch are another, and they meet over TCP.
//
//	go run ./bench/watch [-watches 2000] [-writers 4] [-time 8s]
//
// Watches that do not read cost most while the kernel still takes what they are sent, in
// the first seconds. It exits with 1 where the promise is broken: 1,000 writes a second
// beside them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/laneway-dev/laneway/bench/programs"
	"github.com/laneway-dev/laneway/bench/turns"
	"github.com/laneway-dev/laneway/internal/control"
	"github.com/laneway-dev/laneway/internal/store/mem"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

const (
	promised = 1000.0           // writes a second beside watches that do not read
	patience = 30 * time.Second // for any one step
	settle   = time.Second      // after the watches have opened
)

// scene is who else watches.
type scene struct {
	name     string
	selected string
	reads    bool
	none     bool
	promise  bool
	pace     int // writes a second at most; 0: as fast as answers come
}

var scenes = []scene{
	{name: "nobody", none: true},
	{name: "reading, of something else", selected: "routes", reads: true},
	{name: "not reading", selected: "services", promise: true},
	{name: "reading all that changes", selected: "services", reads: true},
	{name: "the same, 200 writes/s", selected: "services", reads: true, pace: 200},
	{name: "the same, 1,000 writes/s", selected: "services", reads: true, pace: 1000},
}

func main() {
	watches := flag.Int("watches", 2000, "watches of each kind")
	writers := flag.Int("writers", 4, "writers, each with an object of its own")
	span := flag.Duration("time", 8*time.Second, "how long each kind is measured")
	address := flag.String("be", "", "internal: open watches at this address")
	selected := flag.String("select", "", "internal: of what")
	reads := flag.Bool("read", false, "internal: and read them")
	flag.Parse()
	if flag.NArg() > 0 || *watches < 1 || *writers < 1 || *span <= 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if *address != "" {
		err = beWatchers(ctx, *address, *selected, *watches, *reads)
	} else {
		err = measure(ctx, *watches, *writers, *span)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "watch:", err)
		os.Exit(1)
	}
}

// beWatchers keeps watches open until standard input ends.
func beWatchers(ctx context.Context, address, selected string, n int, reads bool) (err error) {
	var conns []net.Conn
	var wg sync.WaitGroup
	defer func() {
		for _, c := range conns {
			err = errors.Join(err, c.Close())
		}
		wg.Wait()
	}()
	for range n {
		c, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		conns = append(conns, c)
		if _, err := fmt.Fprintf(c, "GET /v1/watch?select=%s HTTP/1.1\r\nHost: %s\r\n\r\n", selected, address); err != nil {
			return err
		}
		first := make([]byte, len("HTTP/1.1 200"))
		if _, err := io.ReadFull(c, first); err != nil || string(first) != "HTTP/1.1 200" {
			return fmt.Errorf("a watch is refused: %q (%w)", first, err)
		}
		if reads {
			wg.Go(func() { _, _ = io.Copy(io.Discard, c) }) // ends when it is closed, here or there
		}
	}
	return programs.UntilEnd()
}

func measure(ctx context.Context, watches, writers int, span time.Duration) error {
	fmt.Printf("%d watches, %d writers, registry in memory\n\n", watches, writers)
	fmt.Printf("%-28s %10s %8s %12s %12s %12s\n", "watches", "writes/s", "ratio", "write p99", "seen p50", "seen p99")
	base, kept := 0.0, true
	for _, s := range scenes {
		r, err := play(ctx, s, watches, writers, span)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if base == 0 {
			base = r.rate
		}
		note := ""
		if s.promise && r.rate < promised {
			note, kept = fmt.Sprintf("  promised: %.0f", promised), false
		}
		fmt.Printf("%-28s %10.0f %8.2f %12s %12s %12s%s\n", s.name, r.rate, r.rate/base, r.write, r.seen50, r.seen99, note)
	}
	if !kept {
		return errors.New("the promise is broken")
	}
	return nil
}

// result is what one scene came to.
type result struct {
	rate                  float64
	write, seen50, seen99 time.Duration
}

func play(ctx context.Context, s scene, watches, writers int, span time.Duration) (r result, err error) {
	address, stop, err := serve(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if !s.none {
		end, err := programs.Again(ctx, nil, "-be", address, "-select", s.selected, "-watches", strconv.Itoa(watches), "-read="+strconv.FormatBool(s.reads))
		if err != nil {
			return r, err
		}
		defer func() { _ = end() }() // those that are cut off say so
	}
	if err := sleep(ctx, settle); err != nil {
		return r, err
	}
	return write(ctx, "http://"+address, writers, s.pace, span)
}

// serve runs a control plane of its own for a scene.
func serve(ctx context.Context) (address string, stop func() error, err error) {
	registry := mem.New()
	c, err := control.New(control.Config{Store: registry})
	if err != nil {
		return "", nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	runCtx, cancel := context.WithCancel(ctx)
	server := &http.Server{Handler: c.Handler(), ReadHeaderTimeout: patience}
	done := make(chan error, 2)
	go func() { done <- c.Run(runCtx) }()
	go func() { done <- server.Serve(control.Listener(l)) }()
	return l.Addr().String(), func() error {
		cancel()
		err := errors.Join(server.Close(), registry.Close())
		for range 2 {
			if e := <-done; !errors.Is(e, http.ErrServerClosed) {
				err = errors.Join(err, e)
			}
		}
		return err
	}, nil
}

// series collects durations.
type series struct {
	mu   sync.Mutex
	list []time.Duration
}

func (s *series) add(d time.Duration) {
	s.mu.Lock()
	s.list = append(s.list, d)
	s.mu.Unlock()
}

func (s *series) at(q float64) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) == 0 {
		return 0
	}
	return turns.Quantile(s.list, q).Round(10 * time.Microsecond)
}

// write changes objects as fast as answers come, and looks on as one more watch does.
func write(ctx context.Context, url string, writers, pace int, span time.Duration) (r result, err error) {
	api := laneclient.NewAPI(laneclient.Config{Control: []string{url}})
	defer func() { err = errors.Join(err, api.Close()) }()
	var wrote, seen series
	watchCtx, stop := context.WithCancel(ctx)
	defer stop()
	w, err := api.Watch(watchCtx, 0, []string{"services"})
	if err != nil {
		return r, err
	}
	defer func() { _ = w.Close() }()
	var started sync.Map // by owner: when the write was sent
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		look(w, &started, &seen)
	}()
	var wg sync.WaitGroup
	errs := make([]error, writers)
	begun := time.Now()
	every := time.Duration(0)
	if pace > 0 {
		every = time.Second * time.Duration(writers) / time.Duration(pace)
	}
	for n := range writers {
		wg.Go(func() { errs[n] = change(ctx, api, n, begun.Add(span), every, &started, &wrote) })
	}
	wg.Wait()
	took := time.Since(begun)
	r.rate, r.write = float64(len(wrote.list))/took.Seconds(), wrote.at(0.99)
	if err := sleep(ctx, settle); err != nil { // the last ones are under way
		return r, err
	}
	stop()
	<-watching
	r.seen50, r.seen99 = seen.at(0.5), seen.at(0.99)
	return r, errors.Join(errs...)
}

// change writes one object over and over, at most once in every.
func change(ctx context.Context, api *laneclient.API, n int, until time.Time, every time.Duration, started *sync.Map, wrote *series) error {
	for round := 0; time.Now().Before(until); round++ {
		owner := fmt.Sprintf("owner-%d-%d", n, round)
		s := &laneclient.Service{Meta: laneclient.Meta{Name: fmt.Sprintf("s%d", n)}, Owner: owner}
		sent := time.Now()
		started.Store(owner, sent)
		if _, err := laneclient.Put(ctx, api, s); err != nil {
			return err
		}
		wrote.add(time.Since(sent))
		if err := sleep(ctx, every-time.Since(sent)); err != nil {
			return err
		}
	}
	return nil
}

// look notes how long after its write was sent each change comes in.
func look(w *laneclient.Stream, started *sync.Map, seen *series) {
	for {
		e, err := w.Next()
		if err != nil {
			return
		}
		var s laneclient.Service
		if e.Type != laneclient.EventPut || json.Unmarshal(e.Object, &s) != nil {
			continue
		}
		if sent, ok := started.LoadAndDelete(s.Owner); ok {
			at, _ := sent.(time.Time)
			seen.add(time.Since(at))
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
