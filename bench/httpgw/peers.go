package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/laneway-dev/laneway/bench/programs"
)

// peer is a proxy that routes by the header v-traffic-lane: green to one upstream,
// everything else to another.
type peer struct {
	name    string
	address string
	pid     int
	stop    func() error
}

// addresses of the two upstreams.
type upstreams struct{ base, green string }

const nginxConf = `
daemon off;
worker_processes 1;
pid %[1]s/nginx.pid;
error_log %[1]s/nginx.log crit;
events { worker_connections 1024; }
http {
  access_log off;
  client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
  map $http_v_traffic_lane $to { default base; green green; }
  upstream base { server %[3]s; keepalive 128; keepalive_requests 10000000; }
  upstream green { server %[4]s; keepalive 128; keepalive_requests 10000000; }
  server {
    listen %[2]s;
    keepalive_requests 10000000;
    location / { proxy_pass http://$to; proxy_http_version 1.1; proxy_set_header Connection ""; }
  }
}
`

const haproxyConf = `
global
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  http-reuse always
frontend f
  bind %[1]s
  use_backend green if { req.hdr(v-traffic-lane) -m str green }
  default_backend base
backend base
  server s %[2]s
backend green
  server s %[3]s
`

const caddyConf = `
{
  admin off
  auto_https off
  persist_config off
}
http://%[1]s {
  bind 127.0.0.1
  @green header v-traffic-lane green
  reverse_proxy @green %[3]s
  reverse_proxy %[2]s
}
`

func (b *bench) nginx(ctx context.Context, to upstreams) (*peer, error) {
	address := freeAddress(ctx)
	file, err := b.write("nginx.conf", fmt.Sprintf(nginxConf, b.dir, address, to.base, to.green))
	if err != nil {
		return nil, err
	}
	return b.run(ctx, "nginx", address, "/usr/sbin/nginx", "-c", file, "-p", b.dir)
}

func (b *bench) haproxy(ctx context.Context, to upstreams) (*peer, error) {
	address := freeAddress(ctx)
	file, err := b.write("haproxy.cfg", fmt.Sprintf(haproxyConf, address, to.base, to.green))
	if err != nil {
		return nil, err
	}
	return b.run(ctx, "haproxy", address, "/usr/sbin/haproxy", "-f", file, "-db")
}

// caddy builds caddy where it is not there yet: it is not in Debian's stable release.
func (b *bench) caddy(ctx context.Context, to upstreams) (*peer, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	bin := filepath.Join(cache, "laneway", "bench")
	program := filepath.Join(bin, "caddy")
	if _, err := os.Stat(program); err != nil {
		fmt.Fprintln(os.Stderr, "building caddy, once; this takes some minutes")
		install := exec.CommandContext(ctx, "go", "install", "github.com/caddyserver/caddy/v2/cmd/caddy@"+caddyVersion)
		install.Dir = b.dir // no module of ours has a say in its versions
		install.Env = append(os.Environ(), "GOBIN="+bin, "GOFLAGS=-trimpath", "GOWORK=off")
		if out, err := install.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build caddy: %w: %s", err, out)
		}
	}
	address := freeAddress(ctx)
	file, err := b.write("Caddyfile", fmt.Sprintf(caddyConf, address[strings.LastIndex(address, ":"):], to.base, to.green))
	if err != nil {
		return nil, err
	}
	return b.run(ctx, "caddy", address, program, "run", "--config", file, "--adapter", "caddyfile")
}

// laneway starts a server with static instances: one in the baseline, and one in each of
// so many lanes, of which green is one.
func (b *bench) laneway(ctx context.Context, lanes int, to upstreams) (*peer, error) {
	name := fmt.Sprintf("laneway, %d lanes", lanes)
	if lanes == 1 {
		name = "laneway, 1 lane"
	}
	data, err := os.MkdirTemp(b.dir, "laneway-")
	if err != nil {
		return nil, err
	}
	ready := filepath.Join(data, "ready.json")
	p, err := b.run(ctx, name, "", b.binary, "server", "--data", data, "--ready-file", ready,
		"--listen", "control=127.0.0.1:0", "--listen", "gateway=127.0.0.1:0", "--listen", "inside=127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	at, err := programs.Addresses(ctx, ready)
	if err != nil {
		return nil, err
	}
	p.address = at["inside"]
	var objects strings.Builder
	objects.WriteString(instance("base", "", to.base))
	for i := range lanes {
		lane, address := "green", to.green
		if i > 0 {
			lane, address = fmt.Sprintf("lane%d", i), to.base
		}
		objects.WriteString("---\nkind: lanes\nname: " + lane + "\n" + instance("i"+lane, lane, address))
	}
	file, err := b.write("objects.yaml", objects.String())
	if err != nil {
		return nil, err
	}
	apply := exec.CommandContext(ctx, b.binary, "apply", "-f", file, "--control", "http://"+at["control"])
	if out, err := apply.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("apply: %w: %s", err, out)
	}
	return p, nil
}

func instance(name, lane, address string) string {
	text := "---\nkind: instances\nname: " + name + "\nservice: up\nstatic: true\nendpoints: [{protocol: http, address: \"" + address + "\"}]\n"
	if lane != "" {
		text += "lane: " + lane + "\n"
	}
	return text
}

// run starts a program and waits, where its address is known, until it listens.
func (b *bench) run(ctx context.Context, name, address, program string, arguments ...string) (*peer, error) {
	log, err := os.Create(filepath.Join(b.dir, strings.ReplaceAll(name, " ", "-")+".log"))
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, program, arguments...)
	c.Stdout, c.Stderr = log, log
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w (apt-get install nginx haproxy wrk; make build)", name, errors.Join(err, log.Close()))
	}
	p := &peer{name: name, address: address, pid: c.Process.Pid, stop: func() error { return errors.Join(programs.End(c), log.Close()) }}
	b.peers = append(b.peers, p)
	if address == "" {
		return p, nil
	}
	if err := programs.Poll(ctx, patience, func() error { return listens(ctx, address) }); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}
