package main

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/laneway-dev/laneway/integrations/jetstream"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// engineEmbedded is the URL of an engine that runs in the process itself.
const engineEmbedded = "embedded"

// defaultEngine is the engine of a server that names none.
const defaultEngine = "main"

// defaultNATS is where an embedded engine listens. Where nobody asked for this address and
// something else has it, a free port does: whoever uses the engine asks the control plane
// where it is.
const defaultNATS = "127.0.0.1:7742"

// engineConfig is one message engine of this process.
type engineConfig struct {
	Name string `yaml:"name"`
	URL  string `yaml:"url"` // embedded (default), or that of a cluster
	// What the engine's integration takes; empty: its defaults.
	Durability string   `yaml:"durability"`
	Replicas   int      `yaml:"replicas"`
	Prefix     string   `yaml:"prefix"`
	Rooms      []string `yaml:"rooms"`
	// How this process gets into a cluster. Other processes have theirs from their environment:
	// the registry shows nothing of it.
	Username     string    `yaml:"username"`
	PasswordFile string    `yaml:"password_file"`
	CredsFile    string    `yaml:"creds_file"`
	NkeyFile     string    `yaml:"nkey_file"`
	TLS          tlsConfig `yaml:"tls"`
}

// scheme is what kind of an engine it is, however it is reached.
func (e engineConfig) scheme() string {
	if scheme, _, found := strings.Cut(e.URL, "://"); found && scheme != "tls" {
		return scheme
	}
	return "nats"
}

func (e engineConfig) embedded() bool { return e.URL == engineEmbedded || e.URL == "" }

// jetstream is the configuration of the engine's integration, without where it is.
func (e engineConfig) jetstream() jetstream.Config {
	return jetstream.Config{Durability: jetstream.Durability(e.Durability), Replicas: e.Replicas, Prefix: e.Prefix, Rooms: e.Rooms}
}

// access is how this process gets into the cluster: as the file says, or else as the
// environment does.
func (e engineConfig) access() jetstream.Access {
	if a := e.configured(); a != (jetstream.Access{}) {
		return a
	}
	return jetstream.AccessFromEnv(e.Name)
}

func (e engineConfig) configured() jetstream.Access {
	return jetstream.Access{
		CA: e.TLS.CA, Cert: e.TLS.Cert, Key: e.TLS.Key,
		User: e.Username, PasswordFile: e.PasswordFile, CredsFile: e.CredsFile, NkeyFile: e.NkeyFile,
	}
}

// checkAccess reports what is wrong with how to get into a cluster.
func (e engineConfig) checkAccess(field string) []error {
	var errs []error
	bad := func(field, format string, args ...any) { errs = append(errs, problem(field, format, args...)) }
	if e.embedded() {
		if e.configured() != (jetstream.Access{}) {
			bad(field, "is embedded, and asks nobody who connects: leave out username, password_file, creds_file, nkey_file and tls, or set url")
		}
		return errs
	}
	cfg := jetstream.Config{URL: "nats://127.0.0.1", Access: e.configured()}
	if err := cfg.Validate(); err != nil {
		for text := range strings.SplitSeq(err.Error(), "\n") {
			bad(field, "%s", strings.TrimPrefix(text, "access "))
		}
	}
	if t := e.TLS; (t.Cert == "") == (t.Key == "") {
		if _, err := t.client(field + ".tls"); err != nil {
			errs = append(errs, err)
		}
	}
	for _, way := range []struct{ name, file string }{{"password_file", e.PasswordFile}, {"creds_file", e.CredsFile}, {"nkey_file", e.NkeyFile}} {
		if way.file == "" {
			continue
		}
		if _, err := readSecret(way.file); err != nil {
			bad(field+"."+way.name, "%w", err)
		}
	}
	return errs
}

// setEngines takes NAME=URL. URLs of several hosts have commas in them, as lists do: what
// begins with no name is one more host. What a file says of an engine of the same name
// beside its URL stays.
func setEngines(c *config, values []string) error {
	var out []engineConfig
	for _, v := range values {
		name, url, named := strings.Cut(v, "=")
		if !named || strings.ContainsAny(name, ":/?") {
			if len(out) == 0 {
				return fmt.Errorf("%q: want NAME=URL, as in main=embedded or main=nats://127.0.0.1:4222", v)
			}
			out[len(out)-1].URL += "," + v
			continue
		}
		e := engineConfig{Name: name}
		if i := slices.IndexFunc(c.Engines, func(e engineConfig) bool { return e.Name == name }); i >= 0 {
			e = c.Engines[i]
		}
		e.URL = url
		out = append(out, e)
	}
	c.Engines = out
	return nil
}

// engines are those that this process runs or connects to, the default one first. One that
// shares its registry with other processes has only those that it was given: which of them
// should embed one is nothing to guess.
func (c *config) engines() []engineConfig {
	switch shared := strings.HasPrefix(c.Registry, etcdScheme) || len(c.RegistryPeers) > 0; {
	case !c.has(roleEngine):
		return nil
	case len(c.Engines) > 0:
		return c.Engines
	case c.has(roleControl) && shared:
		return nil
	}
	return []engineConfig{{Name: defaultEngine, URL: engineEmbedded}}
}

// checkEngines reports what is wrong with the engines.
func (c *config) checkEngines() []error {
	var errs []error
	bad := func(field, format string, args ...any) { errs = append(errs, problem(field, format, args...)) }
	if len(c.Engines) > 0 && !c.has(roleEngine) {
		bad("engines", "are run by the role engine: add it to roles, or leave them out")
	}
	if slices.ContainsFunc(c.engines(), engineConfig.embedded) {
		cfg := jetstream.Config{Dir: "x", Room: c.Room}
		if err := cfg.Validate(); err != nil {
			bad("room", "%s", strings.TrimPrefix(err.Error(), "room "))
		}
	}
	embedded := ""
	for i, e := range c.Engines {
		field := fmt.Sprintf("engines[%d]", i)
		if err := lane.CheckInstance(e.Name); err != nil {
			bad(field+".name", "%w", err)
		}
		if slices.ContainsFunc(c.Engines[:i], func(o engineConfig) bool { return o.Name == e.Name }) {
			bad(field+".name", "%q stands there twice", e.Name)
		}
		if err := checkEngineURL(e.URL); err != nil {
			bad(field+".url", "%w", err)
		}
		if e.embedded() {
			if embedded != "" {
				bad(field+".url", "%s is embedded already, and a process embeds one: run this one by another server, or in a cluster of its own", embedded)
			}
			embedded = e.Name
		}
		errs = append(errs, e.checkAccess(field)...)
		where := jetstream.Config{URL: "nats://127.0.0.1"}
		if e.embedded() {
			where = jetstream.Config{Dir: "x"}
		}
		for _, part := range []struct {
			name string
			one  engineConfig
		}{
			{"durability", engineConfig{Durability: e.Durability}},
			{"replicas", engineConfig{Replicas: e.Replicas}},
			{"prefix", engineConfig{Prefix: e.Prefix}},
			{"rooms", engineConfig{Rooms: e.Rooms}},
		} {
			cfg := part.one.jetstream()
			cfg.Dir, cfg.URL = where.Dir, where.URL
			if err := cfg.Validate(); err != nil {
				bad(field+"."+part.name, "%s", strings.TrimPrefix(err.Error(), part.name+" "))
			}
		}
	}
	return errs
}

// checkEngineURL says what is wrong with where an engine is.
func checkEngineURL(url string) error {
	if url == "" || url == engineEmbedded {
		return nil
	}
	scheme, hosts, found := strings.Cut(url, "://")
	if !found {
		return fmt.Errorf("%q is no engine: want embedded, or nats://HOST:PORT,…", url)
	}
	if _, known := engineSchemes()[scheme]; !known {
		return fmt.Errorf("%q: there is no engine for %s:// here; there are embedded, and nats://HOST:PORT,… or tls://HOST:PORT,… for a NATS cluster with JetStream", url, scheme)
	}
	if strings.Contains(hosts, "?") {
		return fmt.Errorf("%q: write what follows the ? as keys of the engine in the file of --config", url)
	}
	list := laneclient.SplitList(strings.ReplaceAll(hosts, scheme+"://", ""))
	if len(list) == 0 {
		return fmt.Errorf("%q names no host: want %s://HOST:PORT,…", url, scheme)
	}
	for _, host := range list {
		if strings.Contains(host, "@") { // not repeated: there may be a password in it
			return fmt.Errorf("names a user: everybody who may read the registry would see the password; leave it out, and give username and password_file, creds_file or nkey_file of the engine in the file of --config, or LANEWAY_ENGINE_CREDS_FILE and so on")
		}
		name, _, err := net.SplitHostPort(host)
		if err != nil {
			name = host
		}
		if name == "" || strings.ContainsAny(host, "/ ") {
			return fmt.Errorf("%q: %q is no host: want %s://HOST:PORT,…", url, host, scheme)
		}
	}
	return nil
}

// engineURL is a URL as the integration takes it: each host with its scheme.
func engineURL(url string) string {
	scheme, hosts, _ := strings.Cut(url, "://")
	list := laneclient.SplitList(strings.ReplaceAll(hosts, scheme+"://", ""))
	for i := range list {
		list[i] = scheme + "://" + list[i]
	}
	return strings.Join(list, ",")
}
