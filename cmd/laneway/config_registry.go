package main

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/laneway-dev/laneway/internal/store/etcd"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// checkRegistry reports what is wrong with where the registry is.
func (c *config) checkRegistry() []error {
	if !c.has(roleControl) {
		return nil
	}
	rest, external := strings.CutPrefix(c.Registry, etcdScheme)
	switch {
	case external && len(laneclient.SplitList(rest)) == 0:
		return []error{problem("registry", "%q names no host: want etcd://HOST:PORT,…", c.Registry)}
	case !external && c.Registry != registryEmbedded && c.Registry != registryMemory:
		return []error{problem("registry", "%q: want embedded or etcd://HOST:PORT,…", c.Registry)}
	case !external && (c.Etcd != etcdConfig{}):
		return []error{problem("etcd", "is for an external registry only: set registry to etcd://HOST:PORT, or leave it out")}
	}
	return append(c.checkEtcd(), c.checkPeers()...)
}

// checkEtcd reports what is wrong with how to get into an external etcd.
func (c *config) checkEtcd() []error {
	var errs []error
	if t := c.Etcd.TLS; (t.Cert == "") != (t.Key == "") {
		errs = append(errs, problem("etcd.tls", "has one of cert and key: give both or neither"))
	} else if _, err := t.client("etcd.tls"); err != nil {
		errs = append(errs, err)
	}
	if c.Etcd.PasswordFile != "" {
		if _, err := readSecret(c.Etcd.PasswordFile); err != nil {
			errs = append(errs, problem("etcd.password_file", "%w", err))
		}
	}
	return errs
}

// checkPeers reports what is wrong with the members of an embedded cluster.
func (c *config) checkPeers() []error {
	listen, tls := c.Listen[listenRegistry], c.RegistryTLS
	if len(c.RegistryPeers) == 0 {
		if listen != "" || c.RegistrySelf != "" || tls.set() {
			return []error{problem("registry_peers", "is missing: name all members of the cluster, or leave out registry_self, registry_tls and listen.registry")}
		}
		return nil
	}
	var errs []error
	bad := func(field, format string, args ...any) { errs = append(errs, problem(field, format, args...)) }
	if c.Registry != registryEmbedded {
		bad("registry_peers", "is for an embedded registry only: leave it out, or registry")
	}
	if n := len(c.RegistryPeers); n < 2 || n > etcd.MaxPeers {
		bad("registry_peers", "has %d: want 2 to %d, best 3 or 5", n, etcd.MaxPeers)
	}
	for i, peer := range c.RegistryPeers {
		field := fmt.Sprintf("registry_peers[%d]", i)
		host, port, err := net.SplitHostPort(peer)
		switch {
		case err != nil || host == "" || port == "" || port == "0":
			bad(field, "%q: want HOST:PORT, as in 127.0.0.1:7701", peer)
		case slices.Contains(c.RegistryPeers[:i], peer):
			bad(field, "%q stands there twice", peer)
		case !tls.set() && !etcd.Loopback(peer):
			errs = append(errs, beyondLoopback(field, peer))
		}
	}
	if tls.set() && (tls.CA == "" || tls.Cert == "" || tls.Key == "") {
		bad("registry_tls", "wants ca, cert and key: members show certificates to each other")
	} else if _, err := tls.client("registry_tls"); err != nil {
		errs = append(errs, err)
	}
	switch self := c.self(); {
	case self == "":
		bad("listen.registry", "is missing: name the one of registry_peers that this process is")
	case slices.Contains(c.RegistryPeers, self):
	case c.RegistrySelf != "":
		bad("registry_self", "%q is none of registry_peers", self)
	default:
		bad("listen.registry", "%q is none of registry_peers: name the one that this process is, or say so with registry_self", self)
	}
	return errs
}

func beyondLoopback(field, addr string) error {
	return problem(field, "%s is not a loopback address, and members of a registry talk beyond loopback by mutual TLS only: set ca, cert and key of registry_tls", addr)
}

// self is which of the peers this process is.
func (c *config) self() string {
	if c.RegistrySelf != "" {
		return c.RegistrySelf
	}
	return c.Listen[listenRegistry]
}

// peers are the members of an embedded cluster. Nil: this process alone.
func (c *config) peers() *etcd.Peers {
	if len(c.RegistryPeers) == 0 {
		return nil
	}
	t := c.RegistryTLS
	return &etcd.Peers{
		All: c.RegistryPeers, Self: c.self(), Listen: c.Listen[listenRegistry], CA: t.CA, Cert: t.Cert, Key: t.Key,
	}
}
