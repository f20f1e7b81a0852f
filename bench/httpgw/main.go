// Command httpgw measures what a request costs in the gateway and in other proxies that
// route by the same header: nginx, haproxy and caddy. All have the same two upstreams with
// keep-alive, one core's worth of workers, no log. Rounds are interleaved; of each figure
// the median counts. CPU is the proxy's own, from the kernel.
//
//	apt-get install nginx haproxy wrk; make build
//	go run ./bench/httpgw [-rounds 5] [-seconds 3] [-caddy=false]
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/laneway-dev/laneway/bench/programs"
	"github.com/laneway-dev/laneway/bench/turns"
)

const (
	caddyVersion = "v2.11.9"
	connections  = 64
	body         = 200              // bytes of an answer
	patience     = 30 * time.Second // for anything to be ready
)

type bench struct {
	binary  string
	dir     string
	rounds  int
	seconds int
	peers   []*peer
}

func main() {
	b := &bench{}
	flag.StringVar(&b.binary, "binary", "bin/laneway", "the built command")
	flag.IntVar(&b.rounds, "rounds", 5, "rounds, each with every proxy")
	flag.IntVar(&b.seconds, "seconds", 3, "seconds of load for one proxy in a round")
	caddy := flag.Bool("caddy", true, "measure caddy too; it is built the first time")
	serve := flag.Bool("serve", false, "internal: be the upstreams")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if *serve {
		err = beUpstreams(ctx)
	} else {
		err = b.all(ctx, *caddy)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "httpgw:", err)
		os.Exit(1)
	}
}

// beUpstreams serves on two ports and prints them.
func beUpstreams(ctx context.Context) error {
	var config net.ListenConfig
	var addresses []string
	for _, name := range []string{"base", "green"} {
		l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		answer := bytes.Repeat([]byte("."), body)
		copy(answer, name)
		server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(answer) // a proxy that has gone needs none
		})}
		go func() { _ = server.Serve(l) }() // ends with the process
		addresses = append(addresses, l.Addr().String())
	}
	fmt.Println(strings.Join(addresses, " "))
	<-ctx.Done()
	return nil
}

func (b *bench) all(ctx context.Context, caddy bool) (err error) {
	if b.dir, err = os.MkdirTemp("", "httpgw-"); err != nil {
		return err
	}
	defer func() {
		for _, p := range b.peers {
			err = errors.Join(err, p.stop())
		}
		err = errors.Join(err, os.RemoveAll(b.dir))
	}()
	to, err := b.upstreams(ctx)
	if err != nil {
		return err
	}
	starts := []func(context.Context, upstreams) (*peer, error){
		b.haproxy, b.nginx,
		func(ctx context.Context, to upstreams) (*peer, error) { return b.laneway(ctx, 1, to) },
		func(ctx context.Context, to upstreams) (*peer, error) { return b.laneway(ctx, 1000, to) },
	}
	if caddy {
		starts = append(starts, b.caddy)
	}
	var measured []*peer
	for _, start := range starts {
		p, err := start(ctx, to)
		if err != nil {
			return err
		}
		if err := check(ctx, p); err != nil {
			return err
		}
		measured = append(measured, p)
	}
	return b.measure(ctx, measured)
}

func (b *bench) upstreams(ctx context.Context) (upstreams, error) {
	self, err := os.Executable()
	if err != nil {
		return upstreams{}, err
	}
	if _, err := b.run(ctx, "upstreams", "", self, "-serve"); err != nil {
		return upstreams{}, err
	}
	var to upstreams
	err = programs.Poll(ctx, patience, func() error {
		text, err := os.ReadFile(filepath.Join(b.dir, "upstreams.log"))
		if err != nil {
			return err
		}
		_, err = fmt.Sscan(string(text), &to.base, &to.green)
		return err
	})
	return to, err
}

// check sees that a proxy routes both kinds of request as it should.
func check(ctx context.Context, p *peer) error {
	for color, want := range map[string]string{"": "base", "green": "green"} {
		err := programs.Poll(ctx, patience, func() error {
			out, err := exec.CommandContext(ctx, "curl", "-sS", "-H", "Host: up.lane.localhost", "-H", "v-traffic-lane: "+color, "http://"+p.address+"/").Output()
			if err == nil && !strings.HasPrefix(string(out), want) {
				err = fmt.Errorf("%s answered color %q by %.40q, want %s", p.name, color, out, want)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// figures are of one proxy, a value for each round.
type figures struct{ cpu, rate []float64 }

func (b *bench) measure(ctx context.Context, peers []*peer) error {
	all := make([]figures, len(peers))
	for round := range b.rounds {
		for i := range peers {
			n := (i + round) % len(peers) // nobody is always first
			cpu, rate, err := b.load(ctx, peers[n])
			if err != nil {
				return fmt.Errorf("%s: %w", peers[n].name, err)
			}
			all[n].cpu = append(all[n].cpu, cpu)
			all[n].rate = append(all[n].rate, rate)
		}
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, b.rounds)
	}
	fmt.Printf("%-20s %14s %12s %12s\n", "proxy", "CPU us/req", "÷ haproxy", "req/s")
	for i, p := range peers {
		fmt.Printf("%-20s %14.1f %12.2f %12.0f\n", p.name, turns.Median(all[i].cpu), turns.Median(turns.Ratios(all[i].cpu, all[0].cpu)), turns.Median(all[i].rate))
	}
	fmt.Printf("\n1,000 lanes ÷ 1 lane, CPU per request, by round: %.2f\n", turns.Median(turns.Ratios(all[3].cpu, all[2].cpu)))
	return nil
}

var (
	requestsLine = regexp.MustCompile(`(\d+) requests in`)
	rateLine     = regexp.MustCompile(`Requests/sec:\s+([\d.]+)`)
)

// load sends colored requests to a proxy as fast as it answers.
func (b *bench) load(ctx context.Context, p *peer) (cpuMicros, rate float64, err error) {
	before, err := programs.ProcessorTime(p.pid)
	if err != nil {
		return 0, 0, err
	}
	out, err := exec.CommandContext(ctx, "wrk", "-t1", fmt.Sprintf("-c%d", connections), fmt.Sprintf("-d%ds", b.seconds),
		"-H", "Host: up.lane.localhost", "-H", "v-traffic-lane: green", "http://"+p.address+"/").CombinedOutput()
	if err != nil {
		return 0, 0, fmt.Errorf("wrk: %w: %s", err, out)
	}
	after, err := programs.ProcessorTime(p.pid)
	if err != nil {
		return 0, 0, err
	}
	n, r := requestsLine.FindSubmatch(out), rateLine.FindSubmatch(out)
	if n == nil || r == nil || bytes.Contains(out, []byte("Non-2xx")) {
		return 0, 0, fmt.Errorf("wrk: not all went well: %s", out)
	}
	count, err := strconv.ParseFloat(string(n[1]), 64)
	if err != nil {
		return 0, 0, err
	}
	rate, err = strconv.ParseFloat(string(r[1]), 64)
	return float64((after - before).Microseconds()) / count, rate, err
}

// freeAddress is one that nobody listens on just now.
func freeAddress(ctx context.Context) string {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "127.0.0.1:0" // the proxy will say what is wrong
	}
	_ = l.Close() // it is only to be free again
	return l.Addr().String()
}

func listens(ctx context.Context, address string) error {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return c.Close()
}

func (b *bench) write(name, text string) (string, error) {
	file := filepath.Join(b.dir, name)
	return file, os.WriteFile(file, []byte(text), 0o600)
}
