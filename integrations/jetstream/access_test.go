package jetstream

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/laneway-dev/laneway/lane/consume"
)

const secret = "open-sesame"

// authority signs certificates; its own is in a file.
type authority struct {
	dir  string
	ca   string // file
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.cert, a.key = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, newKey(t)
	der := a.sign(t, a.cert, a.key)
	a.ca = a.write(t, "ca.pem", "CERTIFICATE", der)
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) sign(t *testing.T, cert *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func (a *authority) write(t *testing.T, name, kind string, der []byte) string {
	t.Helper()
	return writeFile(t, a.dir, name, string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
}

func writeFile(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// issue makes a certificate for loopback, and gives the files of it and of its key.
func (a *authority) issue(t *testing.T, name string) (cert, key string) {
	t.Helper()
	k := newKey(t)
	der := a.sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, k)
	private, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return a.write(t, name+".pem", "CERTIFICATE", der), a.write(t, name+"-key.pem", "EC PRIVATE KEY", private)
}

// tls is the configuration of a server; mutual: clients have to show a certificate.
func (a *authority) tls(t *testing.T, mutual bool) *tls.Config {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(a.issue(t, "server"))
	if err != nil {
		t.Fatal(err)
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	if mutual {
		out.ClientCAs, out.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		out.ClientCAs.AddCert(a.cert)
	}
	return out
}

// startNATS starts a server that is nobody's of Laneway, and gives its host:port.
func startNATS(t *testing.T, o *server.Options) string {
	t.Helper()
	o.Host, o.Port, o.NoSigs, o.NoLog = "127.0.0.1", server.RANDOM_PORT, true, true
	o.JetStream, o.StoreDir = true, t.TempDir()
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("the server does not start")
	}
	return s.Addr().String()
}

// works appends a message, reads it, and looks that the engine tells others no secret.
func works(t *testing.T, cfg Config) {
	t.Helper()
	var log lockedBuffer
	cfg.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	e := open(t, cfg)
	ensure(t, e, consume.TopicSpec{Name: "orders", Partitions: 1})
	if err := e.Append(t.Context(), &consume.Message{Partition: orders, Value: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	b, err := e.Read(t.Context(), orders, 0, consume.Filter{All: true}, 10)
	if err != nil || len(b.Messages) != 1 {
		t.Errorf("read %d messages, %v; want one", len(b.Messages), err)
	}
	if _, _, err := e.ForeignConsumers(t.Context(), "orders"); err != nil {
		t.Errorf("foreign consumers: %v", err)
	}
	secrets := []string{secret, "@"}
	for _, file := range []string{cfg.Access.PasswordFile, cfg.Access.NkeyFile, cfg.Access.CredsFile} {
		if text, err := os.ReadFile(file); file != "" {
			secrets = append(secrets, strings.TrimSpace(string(text)))
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for what, text := range map[string]string{"URL": e.URL(), "log": log.String()} {
		for _, s := range secrets {
			if strings.Contains(text, s) {
				t.Errorf("the %s tells a secret: %s", what, text)
			}
		}
	}
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// refused opens an engine that must not open, and looks what the error says.
func refused(t *testing.T, cfg Config, want ...string) {
	t.Helper()
	e, err := Open(t.Context(), cfg)
	if err == nil {
		_ = e.Close()
		t.Errorf("%s with %+v opens", cfg.URL, cfg.Access)
		return
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s with %+v: %v; want %q in it", cfg.URL, cfg.Access, err, w)
		}
	}
	if strings.Contains(err.Error(), secret) {
		t.Errorf("the error tells a password: %v", err)
	}
}

// TestAccessTLS: a server with TLS is used by those who know its authority, and by nobody
// who does not, or does not show what it wants to see.
func TestAccessTLS(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	at := startNATS(t, &server.Options{TLSConfig: ours.tls(t, false), TLSTimeout: 10})
	works(t, Config{URL: "tls://" + at, Access: Access{CA: ours.ca}})
	works(t, Config{URL: "nats://" + at, Prefix: "other", Access: Access{CA: ours.ca}}) // the server asks for it
	refused(t, Config{URL: "tls://" + at, Access: Access{CA: theirs.ca}}, "not of an authority in "+theirs.ca, "LANEWAY_ENGINE_CA")
	refused(t, Config{URL: "tls://" + at}, "no authority that this system trusts", "LANEWAY_ENGINE_CA")
	_, port, _ := net.SplitHostPort(at)
	refused(t, Config{URL: "tls://localhost:" + port, Access: Access{CA: ours.ca}}, "for other names")

	open := startNATS(t, &server.Options{})
	refused(t, Config{URL: "tls://" + open, Access: Access{CA: ours.ca}}, "has no TLS")
	refused(t, Config{URL: "tls://" + open}, "has no TLS")

	mutual := startNATS(t, &server.Options{TLSConfig: ours.tls(t, true), TLSTimeout: 10})
	cert, key := ours.issue(t, "client")
	works(t, Config{URL: "tls://" + mutual, Access: Access{CA: ours.ca, Cert: cert, Key: key}})
	refused(t, Config{URL: "tls://" + mutual, Access: Access{CA: ours.ca}}, "cert and key")
	cert, key = theirs.issue(t, "client")
	refused(t, Config{URL: "tls://" + mutual, Access: Access{CA: ours.ca, Cert: cert, Key: key}}, "cert and key")
	refused(t, Config{URL: "tls://" + at, Access: Access{CA: filepath.Join(ours.dir, "none")}}, "none")
	refused(t, Config{URL: "tls://" + at, Access: Access{CA: key}}, key)
}

// TestAccessPassword: by user and password, whose file is read again when the connection is
// made anew.
func TestAccessPassword(t *testing.T) {
	at := startNATS(t, &server.Options{Username: "laneway", Password: secret})
	dir := t.TempDir()
	right, wrong := writeFile(t, dir, "right", secret+"\n"), writeFile(t, dir, "wrong", "x"+secret)
	access := Access{User: "laneway", PasswordFile: right}
	works(t, Config{URL: "nats://" + at, Access: access})
	works(t, Config{URL: "nats://" + at, Prefix: "own", Options: []nats.Option{nats.UserInfo("laneway", secret)}})
	refused(t, Config{URL: "nats://" + at, Access: Access{User: "laneway", PasswordFile: wrong}}, "does not take these credentials", "username laneway and "+wrong)
	refused(t, Config{URL: "nats://" + at}, "asks who connects", "LANEWAY_ENGINE_CREDS_FILE")
	refused(t, Config{URL: "nats://" + at, Access: Access{User: "laneway", PasswordFile: filepath.Join(dir, "none")}}, "password_file: open ")
	refused(t, Config{URL: "nats://laneway:" + secret + "@" + at}, "names a user")
}

// TestAccessKeys: by the seed of an nkey, and by credentials of an account of an operator.
func TestAccessKeys(t *testing.T) {
	dir := t.TempDir()
	pair := func(make func() (nkeys.KeyPair, error)) (pair nkeys.KeyPair, public, seed string) {
		t.Helper()
		pair, err := make()
		if err != nil {
			t.Fatal(err)
		}
		public, err = pair.PublicKey()
		if err != nil {
			t.Fatal(err)
		}
		text, err := pair.Seed()
		if err != nil {
			t.Fatal(err)
		}
		return pair, public, string(text)
	}
	_, public, seed := pair(nkeys.CreateUser)
	_, _, other := pair(nkeys.CreateUser)
	right, wrong := writeFile(t, dir, "right.nk", seed), writeFile(t, dir, "wrong.nk", other)
	at := startNATS(t, &server.Options{Nkeys: []*server.NkeyUser{{Nkey: public}}})
	works(t, Config{URL: "nats://" + at, Access: Access{NkeyFile: right}})
	refused(t, Config{URL: "nats://" + at, Access: Access{NkeyFile: wrong}}, "does not take these credentials", wrong)
	refused(t, Config{URL: "nats://" + at, Access: Access{NkeyFile: writeFile(t, dir, "none.nk", secret)}}, "nkey_file: ")

	operator, operatorID, _ := pair(nkeys.CreateOperator)
	account, accountID, _ := pair(nkeys.CreateAccount)
	encode := func(c jwt.Claims, by nkeys.KeyPair) string {
		t.Helper()
		text, err := c.Encode(by)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	claims := jwt.NewAccountClaims(accountID)
	claims.Limits.JetStreamLimits = jwt.JetStreamLimits{DiskStorage: -1, MemoryStorage: -1, Streams: -1, Consumer: -1}
	resolver := &server.MemAccResolver{}
	_, systemID, _ := pair(nkeys.CreateAccount)
	for id, c := range map[string]*jwt.AccountClaims{accountID: claims, systemID: jwt.NewAccountClaims(systemID)} {
		if err := resolver.Store(id, encode(c, operator)); err != nil {
			t.Fatal(err)
		}
	}
	trusted := jwt.NewOperatorClaims(operatorID)
	encode(trusted, operator)
	user := func(by nkeys.KeyPair, name string) (file string) {
		_, id, seed := pair(nkeys.CreateUser)
		text, err := jwt.FormatUserConfig(encode(jwt.NewUserClaims(id), by), []byte(seed))
		if err != nil {
			t.Fatal(err)
		}
		return writeFile(t, dir, name, string(text))
	}
	at = startNATS(t, &server.Options{TrustedOperators: []*jwt.OperatorClaims{trusted}, AccountResolver: resolver, SystemAccount: systemID})
	works(t, Config{URL: "nats://" + at, Access: Access{CredsFile: user(account, "right.creds")}})
	stranger, _, _ := pair(nkeys.CreateAccount)
	refused(t, Config{URL: "nats://" + at, Access: Access{CredsFile: user(stranger, "wrong.creds")}}, "does not take these credentials", "wrong.creds")
	refused(t, Config{URL: "nats://" + at, Access: Access{CredsFile: filepath.Join(dir, "none.creds")}}, "creds_file: open ")
}

func TestAccessProblems(t *testing.T) {
	for want, cfg := range map[string]Config{
		"one of cert and key":                   {URL: "nats://h", Access: Access{Cert: "c"}},
		"one of username and password_file":     {URL: "nats://h", Access: Access{User: "u"}},
		"several of username":                   {URL: "nats://h", Access: Access{CredsFile: "c", NkeyFile: "n"}},
		"access and options are for an externa": {Dir: "x", Access: Access{CA: "c"}},
		"url names a user":                      {URL: "nats://u:" + secret + "@h"},
	} {
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestAccessFromEnv: what is for one engine goes before what is for all.
func TestAccessFromEnv(t *testing.T) {
	for name, value := range map[string]string{
		"CA": "ca", "CERT": "cert", "KEY": "key", "USERNAME": "u", "PASSWORD_FILE": "p", "CREDS_FILE": "c", "NKEY_FILE": "n",
		"CREDS_FILE_AUDIT_LOG_2": "audit",
	} {
		t.Setenv("LANEWAY_ENGINE_"+name, value)
	}
	all := Access{CA: "ca", Cert: "cert", Key: "key", User: "u", PasswordFile: "p", CredsFile: "c", NkeyFile: "n"}
	for engine, want := range map[string]Access{"": all, "main": all, "audit-log.2": {CredsFile: "audit"}} {
		if got := AccessFromEnv(engine); got != want {
			t.Errorf("engine %q: got %+v, want %+v", engine, got, want)
		}
	}
}
