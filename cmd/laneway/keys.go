package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"

	"github.com/laneway-dev/laneway/internal/coloring"
)

// signing reads the keys of signed colors. Nil: there are none.
func (c *config) signing() (*coloring.SignKeys, error) {
	if len(c.Gateway.Signing) == 0 {
		return nil, nil //nolint:nilnil // none is no error
	}
	keys := make([]coloring.SignKey, len(c.Gateway.Signing))
	for i, k := range c.Gateway.Signing {
		secret, err := readSecret(k.File)
		if err != nil {
			return nil, problem(fmt.Sprintf("gateway.signing[%d].file", i), "%w", err)
		}
		keys[i] = coloring.SignKey{ID: k.ID, Secret: secret}
	}
	all, err := coloring.NewSignKeys(keys...)
	if err != nil {
		return nil, problem("gateway.signing", "%w", err)
	}
	return all, nil
}

// jwt reads the keys by which bearer tokens are checked. Nil: there are none.
func (c *config) jwt() (*coloring.JWTKeys, error) {
	if len(c.Gateway.JWT) == 0 {
		return nil, nil //nolint:nilnil // none is no error
	}
	keys := make([]coloring.JWTKey, len(c.Gateway.JWT))
	for i, k := range c.Gateway.JWT {
		field := fmt.Sprintf("gateway.jwt[%d]", i)
		text, err := readSecret(k.File)
		if err != nil {
			return nil, problem(field+".file", "%w", err)
		}
		keys[i] = coloring.JWTKey{ID: k.ID, Algorithm: k.Algorithm, Issuer: k.Issuer, Audience: k.Audience, Key: text}
		if k.Algorithm == "HS256" {
			continue
		}
		if keys[i].Key, err = publicKey(text); err != nil {
			return nil, problem(field+".file", "%s: %w", k.File, err)
		}
	}
	all, err := coloring.NewJWTKeys(keys...)
	if err != nil {
		return nil, problem("gateway.jwt", "%w", err)
	}
	return all, nil
}

// readSecret reads a file without the line end that editors leave.
func readSecret(path string) ([]byte, error) {
	if path == "" {
		return nil, errors.New("is empty: name the file that holds the key")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return bytes.TrimRight(text, "\r\n"), nil
}

// publicKey reads a public key, or that of a certificate, from PEM.
func publicKey(text []byte) (any, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("is no PEM: want a PUBLIC KEY or a CERTIFICATE")
	}
	var key any
	var err error
	if block.Type == "CERTIFICATE" {
		var cert *x509.Certificate
		if cert, err = x509.ParseCertificate(block.Bytes); err == nil {
			key = cert.PublicKey
		}
	} else {
		key, err = x509.ParsePKIXPublicKey(block.Bytes)
	}
	if err != nil {
		return nil, err
	}
	switch key.(type) {
	case *rsa.PublicKey, *ecdsa.PublicKey:
		return key, nil
	}
	return nil, fmt.Errorf("holds a key of type %T: want RSA or ECDSA", key)
}

// client is the TLS configuration of a client, whose field is named in errors. Nil: no
// TLS.
func (t tlsConfig) client(field string) (*tls.Config, error) {
	if !t.set() {
		return nil, nil //nolint:nilnil // none is no error
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		var err error
		if out.RootCAs, err = readPool(t.CA); err != nil {
			return nil, problem(field+".ca", "%w", err)
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, problem(field, "cert and key: %w", err)
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}

// server is the TLS configuration of a listener, whose field is named in errors.
// Nil: no TLS.
func (t serverTLSConfig) server(field string) (*tls.Config, error) {
	if t == (serverTLSConfig{}) {
		return nil, nil //nolint:nilnil // none is no error
	}
	pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, problem(field, "cert and key: %w", err)
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	if t.ClientCA != "" {
		if out.ClientCAs, err = readPool(t.ClientCA); err != nil {
			return nil, problem(field+".client_ca", "%w", err)
		}
		out.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return out, nil
}

// readPool reads the certificates of a PEM file.
func readPool(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM", path)
	}
	return pool, nil
}
