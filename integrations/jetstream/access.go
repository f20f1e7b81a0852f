package jetstream

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/nats-io/nats.go"
)

// Access is how a client gets into servers that ask who connects, or that have TLS: names of
// files, so that no secret lies in a configuration. Files are read again at each connection,
// also one that is made anew. The zero value shows nothing and trusts the authorities of the
// system; the server decides whether that is enough.
type Access struct {
	// CA is a PEM file with the authorities that sign the servers' certificates. Empty: those
	// of the system. With any of CA, Cert and Key the connection has TLS, or is none.
	CA string
	// Cert and Key are PEM files that are shown to servers. Both or neither.
	Cert, Key string
	// User is a name, PasswordFile has its password. Both or neither.
	User, PasswordFile string
	// CredsFile is a file with a user's JWT and seed, as nsc writes it: its name ends in .creds.
	CredsFile string
	// NkeyFile is a file with the seed of an nkey. At most one of User, CredsFile and NkeyFile
	// is given.
	NkeyFile string
}

// accessKey is one field of an Access, as files and the environment have it.
type accessKey struct {
	name  string
	field func(*Access) *string
}

func accessKeys() []accessKey {
	return []accessKey{
		{"ca", func(a *Access) *string { return &a.CA }},
		{"cert", func(a *Access) *string { return &a.Cert }},
		{"key", func(a *Access) *string { return &a.Key }},
		{"username", func(a *Access) *string { return &a.User }},
		{"password_file", func(a *Access) *string { return &a.PasswordFile }},
		{"creds_file", func(a *Access) *string { return &a.CredsFile }},
		{"nkey_file", func(a *Access) *string { return &a.NkeyFile }},
	}
}

// envAccess is how the variables begin that [AccessFromEnv] reads.
const envAccess = "LANEWAY_ENGINE_"

// AccessFromEnv reads the access to an engine of an installation from the environment:
// LANEWAY_ENGINE_CA, _CERT, _KEY, _USERNAME, _PASSWORD_FILE, _CREDS_FILE and _NKEY_FILE. They
// are for all engines, but for one with variables of its own, which end in its name: of engine
// audit-log LANEWAY_ENGINE_CREDS_FILE_AUDIT_LOG and so on; then only those count. Empty name:
// those for all.
func AccessFromEnv(engine string) Access {
	read := func(suffix string) (a Access) {
		for _, k := range accessKeys() {
			*k.field(&a) = os.Getenv(envAccess + strings.ToUpper(k.name) + suffix)
		}
		return a
	}
	if engine != "" {
		own := read("_" + strings.ToUpper(strings.Map(func(r rune) rune {
			if plain(r) && r != '-' {
				return r
			}
			return '_'
		}, engine)))
		if own != (Access{}) {
			return own
		}
	}
	return read("")
}

// check names what is wrong with the fields, by the names that files have.
func (a *Access) check() error {
	var errs []error
	need := func(ok bool, text string) {
		if !ok {
			errs = append(errs, errors.New(text))
		}
	}
	need((a.Cert == "") == (a.Key == ""), "access has one of cert and key: give both or neither")
	need((a.User == "") == (a.PasswordFile == ""), "access has one of username and password_file: give both or neither")
	ways := 0
	for _, way := range []string{a.User, a.CredsFile, a.NkeyFile} {
		if way != "" {
			ways++
		}
	}
	need(ways <= 1, "access has several of username, creds_file and nkey_file: give one")
	return errors.Join(errs...)
}

// options are those of a connection. The error names a file that cannot be used.
func (a *Access) options() ([]nats.Option, error) {
	// A password may be right again at the next try: its file is read anew.
	out := []nats.Option{nats.IgnoreAuthErrorAbort()}
	if a.CA != "" {
		out = append(out, nats.RootCAs(a.CA))
	}
	if a.Cert != "" {
		out = append(out, nats.ClientCert(a.Cert, a.Key))
	}
	switch {
	case a.User != "":
		if _, err := readLine(a.PasswordFile); err != nil {
			return nil, fmt.Errorf("password_file: %w", err)
		}
		out = append(out, nats.UserInfoHandler(func() (user, password string) {
			password, _ = readLine(a.PasswordFile) // without it, the server refuses
			return a.User, password
		}))
	case a.CredsFile != "":
		if _, err := readLine(a.CredsFile); err != nil {
			return nil, fmt.Errorf("creds_file: %w", err)
		}
		out = append(out, nats.UserCredentials(a.CredsFile))
	case a.NkeyFile != "":
		key, err := nats.NkeyOptionFromSeed(a.NkeyFile)
		if err != nil {
			return nil, fmt.Errorf("nkey_file: %s: %w", a.NkeyFile, err)
		}
		out = append(out, key)
	}
	return out, nil
}

// readLine reads a file without the line end that editors leave.
func readLine(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if len(text) == 0 {
		return "", fmt.Errorf("%s is empty", path)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}

// explain says beside an error of a connection what can be done about it.
func (a *Access) explain(err error) error {
	const how = "of the engine in the file of --config, or " + envAccess
	refused := errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) || errors.Is(err, nats.ErrAuthRevoked) || errors.Is(err, nats.ErrAccountAuthExpired)
	shows := a.User != "" || a.CredsFile != "" || a.NkeyFile != ""
	var hint string
	switch {
	case err == nil:
		return nil
	case refused && shows:
		hint = "the server does not take these credentials: check what " + a.names() + " has"
	case refused && a.Cert != "":
		hint = "the server does not take this certificate for a user of it: check " + a.Cert + ", or give credentials by username and password_file, creds_file or nkey_file " + how + "CREDS_FILE and so on"
	case refused:
		hint = "the server asks who connects: give credentials by username and password_file, creds_file or nkey_file " + how + "CREDS_FILE and so on"
	case errors.Is(err, nats.ErrSecureConnWanted):
		hint = "the server has no TLS: write nats:// and leave out ca, cert and key, or have it configured"
	case untrusted(err) && a.CA == "":
		hint = "the server's certificate is of no authority that this system trusts: name its authority by ca " + how + "CA"
	case untrusted(err):
		hint = "the server's certificate is not of an authority in " + a.CA + ": name the one that signed it by ca " + how + "CA"
	case certificateName(err):
		hint = "the server's certificate is for other names than the URL has: use one of these, or have the certificate made anew"
	case errors.Is(err, nats.ErrTLS), strings.Contains(err.Error(), "remote error: tls: "): // the alert comes after the handshake, or the end does before it
		hint = "the server refused the certificate that it was shown, or wants one: give one of an authority that it trusts by cert and key " + how + "CERT and " + envAccess + "KEY"
	default:
		return err
	}
	return fmt.Errorf("%w: %s", err, hint)
}

// names are the files that the access has for credentials.
func (a *Access) names() string {
	switch {
	case a.User != "":
		return "username " + a.User + " and " + a.PasswordFile
	case a.CredsFile != "":
		return a.CredsFile
	default:
		return a.NkeyFile
	}
}

func untrusted(err error) bool {
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	return unknown
}

func certificateName(err error) bool {
	_, other := errors.AsType[x509.HostnameError](err)
	return other
}
