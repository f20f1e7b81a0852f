// Package etcdtest runs etcd clusters on loopback for tests: with TLS and users, or plain.
package etcdtest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// Users of a cluster that [Start] made, and the password of both.
const (
	// Admin may do everything.
	Admin = "root"
	// User may read and write keys that begin with [Prefix].
	User     = "laneway"
	Password = "correct horse"
	Prefix   = "laneway/"
)

const readyWithin = time.Minute

// Cluster are members on loopback, in this process.
type Cluster struct {
	Members []*Member
	// TLS is for clients; nil if the cluster is plain.
	TLS *tls.Config
	// CA, Cert and Key name PEM files that say the same as TLS.
	CA, Cert, Key string
}

// Member is one etcd.
type Member struct {
	cfg    *embed.Config
	server *embed.Etcd // nil while it is down
}

// Start starts a cluster of n members, with TLS for clients and peers, and with users. It
// is stopped when the test ends.
func Start(t testing.TB, n int) *Cluster {
	t.Helper()
	c := &Cluster{}
	c.certify(t)
	c.start(t, n)
	c.authenticate(t)
	return c
}

// StartPlain is Start without TLS and users.
func StartPlain(t testing.TB, n int) *Cluster {
	t.Helper()
	c := &Cluster{}
	c.start(t, n)
	return c
}

func (c *Cluster) start(t testing.TB, n int) {
	t.Helper()
	scheme, files := "http", transport.TLSInfo{}
	if c.TLS != nil {
		// With an authority to trust, members want certificates of clients too.
		scheme, files = "https", transport.TLSInfo{CertFile: c.Cert, KeyFile: c.Key, TrustedCAFile: c.CA}
	}
	var initial []string
	for i := range n {
		cfg := embed.NewConfig()
		cfg.Name, cfg.Dir = fmt.Sprint("m", i), t.TempDir()
		peer, client := address(t, scheme), address(t, scheme)
		cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
		cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
		cfg.PeerTLSInfo, cfg.ClientTLSInfo = files, files
		cfg.EnableGRPCGateway = false
		cfg.BcryptCost = 4 // the lowest: the test is not about it
		cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
		initial = append(initial, cfg.Name+"="+peer.String())
		c.Members = append(c.Members, &Member{cfg: cfg})
	}
	t.Cleanup(func() {
		for _, m := range c.Members {
			m.Stop()
		}
	})
	for _, m := range c.Members {
		m.cfg.InitialCluster = strings.Join(initial, ",")
		m.Start(t)
	}
	for _, m := range c.Members {
		m.Wait(t)
	}
}

// Start starts a member that was stopped, with the data that it had.
func (m *Member) Start(t testing.TB) {
	t.Helper()
	var err error
	if m.server, err = embed.StartEtcd(m.cfg); err != nil {
		t.Fatal(err)
	}
}

// Wait returns when a member is ready, which takes a majority.
func (m *Member) Wait(t testing.TB) {
	t.Helper()
	late := time.NewTimer(readyWithin)
	defer late.Stop()
	select {
	case <-m.server.Server.ReadyNotify():
	case <-late.C:
		t.Fatalf("member %s is not ready", m.cfg.Name)
	}
}

// Stop stops a member, as a crash would: it hands nothing over. One that is down stays
// so.
func (m *Member) Stop() {
	if m.server != nil {
		m.server.Server.HardStop()
		m.server.Close()
		m.server = nil
	}
}

// address is one that was free just now.
func address(t testing.TB, scheme string) url.URL {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return url.URL{Scheme: scheme, Host: l.Addr().String()}
}

// certify makes an authority and one certificate for everybody.
func (c *Cluster) certify(t testing.TB) {
	t.Helper()
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c.Cert, c.Key = write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", keyDER)
	c.CA = c.Cert
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	c.TLS = &tls.Config{
		RootCAs: roots, MinVersion: tls.VersionTLS12,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
	}
}

// authenticate makes users necessary, and one who may do no more than a store needs.
func (c *Cluster) authenticate(t testing.TB) {
	t.Helper()
	root, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), TLS: c.TLS, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	steps := []func() error{
		func() error { _, err := root.UserAdd(ctx, Admin, Password); return err },
		func() error { _, err := root.UserGrantRole(ctx, Admin, "root"); return err },
		func() error { _, err := root.RoleAdd(ctx, User); return err },
		func() error {
			_, err := root.RoleGrantPermission(ctx, User, Prefix, clientv3.GetPrefixRangeEnd(Prefix), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := root.UserAdd(ctx, User, Password); return err },
		func() error { _, err := root.UserGrantRole(ctx, User, User); return err },
		func() error { _, err := root.AuthEnable(ctx); return err },
	}
	for i, step := range steps {
		if err := step(); err != nil {
			t.Fatalf("step %d of making users: %v", i, err)
		}
	}
}

// Endpoints are the URLs for clients.
func (c *Cluster) Endpoints() []string {
	var out []string
	for _, m := range c.Members {
		out = append(out, m.cfg.AdvertiseClientUrls[0].String())
	}
	return out
}

// Leader is the member that leads, nil if none does.
func (c *Cluster) Leader() *Member {
	for _, m := range c.Members {
		if m.server != nil && m.server.Server.Leader() == m.server.Server.MemberID() {
			return m
		}
	}
	return nil
}
