package etcd

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
)

// MaxPeers is how many members an embedded cluster may have: each write waits for a
// majority of them.
const MaxPeers = 7

// Peers are the members of an embedded cluster. They are the same for all of them, and
// the same at each start: a member that has begun goes by what it has on disk.
type Peers struct {
	// All are the addresses, HOST:PORT, at which the members reach each other: two to
	// [MaxPeers].
	All []string
	// Self is the one of All that is this member's.
	Self string
	// Listen is where this member listens for the others: an IP address and a port.
	// Default: Self.
	Listen string
	// CA, Cert and Key name PEM files for mutual TLS among members: all three or none. They
	// have to be given where an address is not a loopback one.
	CA, Cert, Key string
}

func (p *Peers) validate(dir string) error {
	var errs []error
	if dir == "" {
		errs = append(errs, errors.New("etcd: peers are for an embedded store"))
	}
	if len(p.All) < 2 || len(p.All) > MaxPeers {
		errs = append(errs, fmt.Errorf("etcd: %d peers: want 2 to %d, best 3 or 5", len(p.All), MaxPeers))
	}
	for i, addr := range p.All {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			errs = append(errs, fmt.Errorf("etcd: peer %q: want HOST:PORT", addr))
		} else if slices.Contains(p.All[:i], addr) {
			errs = append(errs, fmt.Errorf("etcd: peer %q stands there twice", addr))
		}
	}
	if !slices.Contains(p.All, p.Self) {
		errs = append(errs, fmt.Errorf("etcd: %q, this member, is none of the peers %s", p.Self, strings.Join(p.All, ", ")))
	}
	switch {
	case (p.CA == "") != (p.Cert == "") || (p.Cert == "") != (p.Key == ""):
		errs = append(errs, errors.New("etcd: TLS among peers wants an authority, a certificate and a key"))
	case p.CA != "":
	default:
		for _, addr := range append([]string{p.listen()}, p.All...) {
			if !Loopback(addr) {
				errs = append(errs, fmt.Errorf("etcd: peer address %s is beyond loopback, which takes TLS among peers", addr))
			}
		}
	}
	return errors.Join(errs...)
}

func (p *Peers) listen() string {
	if p.Listen != "" {
		return p.Listen
	}
	return p.Self
}

// Loopback says whether HOST:PORT is reached from this machine only.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// configure makes c a member among p. Nil: it stays alone.
func (p *Peers) configure(c *embed.Config) error {
	if p == nil {
		return nil
	}
	scheme := "http"
	if p.CA != "" {
		scheme = "https"
		c.PeerTLSInfo = transport.TLSInfo{CertFile: p.Cert, KeyFile: p.Key, TrustedCAFile: p.CA, ClientCertAuth: true}
	}
	listen, err := numeric(p.listen())
	if err != nil {
		return err
	}
	c.Name = p.Self
	c.ListenPeerUrls = []url.URL{{Scheme: scheme, Host: listen}}
	c.AdvertisePeerUrls = []url.URL{{Scheme: scheme, Host: p.Self}}
	// Nobody dials it. A member that has one is known to have begun, so that the others
	// refuse to take it for a new one when its disk is lost: it may have voted.
	c.AdvertiseClientUrls = []url.URL{{Scheme: "unix", Host: memberName}}
	all := make([]string, len(p.All))
	for i, addr := range p.All {
		all[i] = addr + "=" + (&url.URL{Scheme: scheme, Host: addr}).String()
	}
	c.InitialCluster = strings.Join(all, ",")
	return nil
}

// numeric has localhost as the address that etcd can listen at.
func numeric(addr string) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if _, err := netip.ParseAddr(host); err != nil {
		return "", fmt.Errorf("listen for peers at %s: want an IP address", addr)
	}
	return net.JoinHostPort(host, port), nil
}
