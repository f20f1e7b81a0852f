package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/laneway-dev/laneway/internal/coloring"
	"github.com/laneway-dev/laneway/internal/control"
	"github.com/laneway-dev/laneway/internal/run"
	"github.com/laneway-dev/laneway/internal/telemetry"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// Roles of a server.
const (
	roleControl = "control"
	roleGateway = "gateway"
	roleEngine  = "engine"
)

// Listeners of a server. The gateway has two, and admin is there for processes
// without the control role: health, metrics and explain.
const (
	listenControl = "control"
	listenGateway = "gateway"
	listenInside  = "inside"
	listenAdmin   = "admin"
	// listenRegistry is where an embedded registry listens for its peers.
	listenRegistry = "registry"
	// listenNATS is where an embedded message engine takes producers and consumers.
	listenNATS = "nats"
)

// Registries, as --registry has them.
const (
	registryEmbedded = "embedded"
	registryMemory   = "mem" // nothing on disk
	etcdScheme       = "etcd://"
)

// config is a server's configuration. The keys of its YAML are the names of the
// flags, except where a flag sets one entry of a list.
type config struct {
	Roles   []string          `yaml:"roles"`
	Listen  map[string]string `yaml:"listen"`  // listener: host:port
	Control []string          `yaml:"control"` // URLs; without the control role only
	// Hosts that the control API may be called by on loopback, beside localhost.
	ControlHosts []string `yaml:"control_hosts"`
	Registry     string   `yaml:"registry"`
	// The members of an embedded cluster, which of them this one is, and TLS among them.
	RegistryPeers []string   `yaml:"registry_peers"`
	RegistrySelf  string     `yaml:"registry_self"`
	RegistryTLS   tlsConfig  `yaml:"registry_tls"`
	Etcd          etcdConfig `yaml:"etcd"`
	// Message engines, the default one first; see engines.
	Engines []engineConfig `yaml:"engines"`

	Data    string        `yaml:"data"`
	Domain  string        `yaml:"domain"`
	Cluster string        `yaml:"cluster"`
	Room    string        `yaml:"room"`
	Drain   duration      `yaml:"drain"`
	Log     logConfig     `yaml:"log"`
	Gateway gatewayConfig `yaml:"gateway"`

	readyFile string
}

// etcdConfig is how to get into an external etcd.
type etcdConfig struct {
	Username     string    `yaml:"username"`
	PasswordFile string    `yaml:"password_file"`
	TLS          tlsConfig `yaml:"tls"`
}

// tlsConfig names PEM files.
type tlsConfig struct {
	CA   string `yaml:"ca"`
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

func (t tlsConfig) set() bool { return t != tlsConfig{} }

type logConfig struct {
	Format telemetry.LogFormat `yaml:"format"`
	Level  string              `yaml:"level"`
}

type gatewayConfig struct {
	Edge    edgeConfig   `yaml:"edge"`
	Inside  insideConfig `yaml:"inside"`
	Aliases []string     `yaml:"aliases"` // further headers that carry a color
	Signing []signingKey `yaml:"signing"` // keys of signed colors
	JWT     []jwtKey     `yaml:"jwt"`     // keys of bearer tokens in rules
	// AccessLog writes a line per request.
	AccessLog bool `yaml:"access_log"`
}

type edgeConfig struct {
	Trusted []string        `yaml:"trusted"` // addresses or networks whose colors are believed
	TLS     serverTLSConfig `yaml:"tls"`
}

type insideConfig struct {
	TLS serverTLSConfig `yaml:"tls"`
}

// serverTLSConfig names PEM files. With client_ca, clients have to show a
// certificate of one of its authorities.
type serverTLSConfig struct {
	Cert     string `yaml:"cert"`
	Key      string `yaml:"key"`
	ClientCA string `yaml:"client_ca"`
}

type signingKey struct {
	ID   string `yaml:"id"`
	File string `yaml:"file"` // holds the secret
}

type jwtKey struct {
	ID        string `yaml:"id"`
	Algorithm string `yaml:"algorithm"`
	File      string `yaml:"file"` // the secret, or a public key in PEM
	Issuer    string `yaml:"issuer"`
	Audience  string `yaml:"audience"`
}

// duration is a time.Duration written as Go does ("10s").
type duration time.Duration

// UnmarshalText reads a duration.
func (d *duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is no duration: write a number with a unit, such as 10s", text)
	}
	*d = duration(v)
	return nil
}

func defaultConfig(getenv func(string) string) *config {
	return &config{
		Roles: []string{roleControl, roleGateway, roleEngine},
		Listen: map[string]string{
			listenControl: "127.0.0.1:7700", listenGateway: "127.0.0.1:7780",
			listenInside: "127.0.0.1:7781", listenAdmin: "127.0.0.1:0",
		},
		Control:  []string{laneclient.DefaultControl},
		Registry: registryEmbedded,
		Data:     defaultData(getenv),
		Domain:   "lane.localhost",
		Drain:    duration(run.DefaultDrain),
		Log:      logConfig{Format: telemetry.LogAuto, Level: "info"},
	}
}

// defaultData is $XDG_STATE_HOME/laneway, where that variable defaults to
// ~/.local/state by the XDG Base Directory Specification.
func defaultData(getenv func(string) string) string {
	state := getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) { // the specification has relative ones ignored
		home := getenv("HOME")
		if home == "" {
			return ""
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "laneway")
}

// setting is one thing that both a flag and an environment variable set. Lists
// are given whole, separated by commas; as a flag also one by one.
type setting struct {
	flag, usage string
	list        bool
	set         func(c *config, values []string) error
}

// env is the name of the setting's environment variable.
func (s setting) env() string {
	return "LANEWAY_" + strings.ToUpper(strings.ReplaceAll(s.flag, "-", "_"))
}

func settings() []setting {
	text := func(field func(*config) *string) func(*config, []string) error {
		return func(c *config, v []string) error { *field(c) = v[len(v)-1]; return nil }
	}
	list := func(field func(*config) *[]string) func(*config, []string) error {
		return func(c *config, v []string) error { *field(c) = v; return nil }
	}
	return []setting{
		{"roles", "`ROLE`,… of this process: control, gateway, engine (default all)", true, list(func(c *config) *[]string { return &c.Roles })},
		{"listen", "`ROLE=ADDR` for control, gateway, inside, nats, admin or registry; port 0 takes a free one; repeatable", true, setListen},
		{"control-hosts", "`HOST`,… by which the control API may be called on loopback, beside localhost and loopback addresses", true, list(func(c *config) *[]string { return &c.ControlHosts })},
		{"registry", "`WHERE` it is: embedded (default), etcd://HOST:PORT,… or mem (nothing on disk, for tests)", false, text(func(c *config) *string { return &c.Registry })},
		{"registry-peers", "`HOST:PORT`,… of all members of an embedded cluster, this one's among them", true, list(func(c *config) *[]string { return &c.RegistryPeers })},
		{"registry-self", "`HOST:PORT` of --registry-peers that this process is (default that of --listen registry=ADDR)", false, text(func(c *config) *string { return &c.RegistrySelf })},
		{"engine", "`NAME=URL` of a message engine: embedded, nats://HOST:PORT,… or tls://HOST:PORT,…; repeatable, the first is the default (default main=embedded, unless the registry is shared by --registry-peers or etcd://)", true, setEngines},
		{"data", "`DIR`ectory for all data (default $XDG_STATE_HOME/laneway)", false, text(func(c *config) *string { return &c.Data })},
		{"domain", "`DOMAIN` of service hosts (default lane.localhost)", false, text(func(c *config) *string { return &c.Domain })},
		{"cluster", "`LABEL` of this installation in host names", false, text(func(c *config) *string { return &c.Cluster })},
		{"room", "`NAME` of the data center or zone that this process is in", false, text(func(c *config) *string { return &c.Room })},
		{"drain", "`TIME` that stopping may take (default 10s)", false, setDrain},
		{"log-format", "`FORMAT` of the log: auto (default), text or json", false, func(c *config, v []string) error { return c.Log.Format.Set(v[0]) }},
		{"log-level", "`LEVEL` from which on it is written: debug, info (default), warn or error", false, text(func(c *config) *string { return &c.Log.Level })},
		{"ready-file", "`FILE` that gets the addresses, as JSON, once all roles are ready", false, text(func(c *config) *string { return &c.readyFile })},
	}
}

func setListen(c *config, values []string) error {
	for _, v := range values {
		role, addr, found := strings.Cut(v, "=")
		if !found {
			return fmt.Errorf("%q: want ROLE=ADDR, as in gateway=127.0.0.1:8080", v)
		}
		c.Listen[role] = addr
	}
	return nil
}

func setDrain(c *config, values []string) error { return c.Drain.UnmarshalText([]byte(values[0])) }

// readFile reads the YAML of path over what c has. Keys that it does not know are
// errors.
func (c *config) readFile(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	listen := maps.Clone(c.Listen)
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return errors.New(path + separator(err) + yamlText(err))
	}
	if err := checkYAML(path, &doc, reflect.TypeFor[config]()); err != nil {
		return err
	}
	if err := doc.Decode(c); err != nil {
		return fmt.Errorf("%s: %w", path, yamlError(err))
	}
	maps.Copy(listen, c.Listen) // the file's entries go over the defaults
	c.Listen = listen
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: has a second document; write all into one", path)
	}
	return nil
}

// yamlError makes one line, in the words of the file, of what the decoder says on
// several.
func yamlError(err error) error {
	var e *yaml.TypeError
	if !errors.As(err, &e) {
		return errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	out := make([]string, len(e.Errors))
	for i, text := range e.Errors {
		text, _, _ = strings.Cut(text, " in type main.")
		text = strings.ReplaceAll(text, "field ", "key ")
		text, _, _ = strings.Cut(text, " into ")
		out[i] = strings.ReplaceAll(text, "cannot unmarshal !!", "does not take a ")
	}
	return errors.New(strings.Join(out, "; "))
}

func (c *config) has(role string) bool { return slices.Contains(c.Roles, role) }

// listeners are the listeners that the roles have.
func (c *config) listeners() []string {
	var out []string
	if c.has(roleControl) {
		out = append(out, listenControl)
	}
	if c.has(roleGateway) {
		out = append(out, listenGateway, listenInside)
	}
	if c.has(roleGateway) || !c.has(roleControl) {
		out = append(out, listenAdmin)
	}
	return out
}

func (c *config) level() (slog.Level, error) {
	var level slog.Level
	err := level.UnmarshalText([]byte(c.Log.Level))
	return level, err
}

// problem is something wrong with a configuration.
func problem(field, format string, args ...any) error {
	return fmt.Errorf("%s: %w", field, fmt.Errorf(format, args...))
}

// validate reports all that is wrong, each with the path of its field.
func (c *config) validate() error {
	var errs []error
	bad := func(field, format string, args ...any) { errs = append(errs, problem(field, format, args...)) }

	if len(c.Roles) == 0 {
		bad("roles", "is empty: want control, gateway, engine or several of them")
	}
	for i, r := range c.Roles {
		if r != roleControl && r != roleGateway && r != roleEngine {
			bad(fmt.Sprintf("roles[%d]", i), "%q is no role: want control, gateway or engine", r)
		}
	}
	errs = append(errs, c.checkListen()...)
	if !c.has(roleControl) {
		errs = append(errs, checkURLs("control", c.Control)...)
	}
	for i, h := range c.ControlHosts {
		if err := control.CheckHost(h); err != nil {
			bad(fmt.Sprintf("control_hosts[%d]", i), "%w", err)
		}
	}
	errs = append(errs, c.checkRegistry()...)
	errs = append(errs, c.checkEngines()...)
	if c.Data == "" {
		bad("data", "is empty: give a directory, or set XDG_STATE_HOME or HOME")
	}
	if c.Domain == "" || strings.Trim(c.Domain, ".") != c.Domain {
		bad("domain", "%q is no domain: want one such as lane.localhost", c.Domain)
	}
	if strings.Contains(c.Cluster, ".") || strings.Contains(c.Cluster, "--") {
		bad("cluster", "%q is no host label: leave out '.' and \"--\"", c.Cluster)
	}
	if c.Drain <= 0 {
		bad("drain", "is not positive: want a time such as 10s")
	}
	if err := new(telemetry.LogFormat).Set(string(c.Log.Format)); err != nil {
		bad("log.format", "%q: want auto, text or json", c.Log.Format)
	}
	if _, err := c.level(); err != nil {
		bad("log.level", "%q: want debug, info, warn or error", c.Log.Level)
	}
	errs = append(errs, c.checkGateway()...)
	return errors.Join(errs...)
}

func (c *config) checkGateway() []error {
	var errs []error
	bad := func(field, format string, args ...any) { errs = append(errs, problem(field, format, args...)) }
	for i, t := range c.Gateway.Edge.Trusted {
		if _, err := coloring.ParsePrefix(t); err != nil {
			bad(fmt.Sprintf("gateway.edge.trusted[%d]", i), "%q: want an address or a network such as 10.0.0.0/8", t)
		}
	}
	if _, err := c.signing(); err != nil {
		errs = append(errs, err)
	}
	if _, err := c.jwt(); err != nil {
		errs = append(errs, err)
	}
	if _, err := c.Gateway.Edge.TLS.server("gateway.edge.tls"); err != nil {
		errs = append(errs, err)
	}
	if _, err := c.Gateway.Inside.TLS.server("gateway.inside.tls"); err != nil {
		errs = append(errs, err)
	}
	if t := c.Gateway.Inside.TLS; t.Cert != "" && t.ClientCA == "" {
		bad("gateway.inside.tls.client_ca", "is missing: the inside believes colors, so with TLS its clients have to show certificates")
	}
	return errs
}

// listenerNames are the listeners that there are.
func listenerNames() []string {
	return []string{listenControl, listenGateway, listenInside, listenAdmin, listenRegistry, listenNATS}
}

func (c *config) checkListen() []error {
	var errs []error
	known := listenerNames()
	for _, name := range slices.Sorted(maps.Keys(c.Listen)) {
		field := "listen." + name
		addr := c.Listen[name]
		host, _, err := net.SplitHostPort(addr)
		switch {
		case !slices.Contains(known, name):
			errs = append(errs, problem(field, "is no listener: want %s", strings.Join(known, ", ")))
		case err != nil:
			errs = append(errs, problem(field, "%q: want HOST:PORT, as in 127.0.0.1:7700", addr))
		case !loopback(host) && !c.authenticates(name):
			hint := ""
			switch name {
			case listenGateway, listenInside:
				hint = "set client_ca of its tls, or "
			case listenRegistry:
				errs = append(errs, beyondLoopback(field, addr))
				continue
			case listenNATS:
				errs = append(errs, problem(field, "%s is not a loopback address, and an embedded engine does not ask who connects: listen on 127.0.0.1, or run NATS servers with authentication of their own and name them with --engine NAME=nats://HOST:PORT", addr))
				continue
			}
			errs = append(errs, problem(field, "%s is not a loopback address, and there is no authentication to protect it: %slisten on 127.0.0.1 and put a proxy that authenticates in front", addr, hint))
		}
	}
	return errs
}

// authenticates reports whether the clients of a listener have to say who they are.
func (c *config) authenticates(name string) bool {
	switch name {
	case listenGateway:
		return c.Gateway.Edge.TLS.ClientCA != ""
	case listenInside:
		return c.Gateway.Inside.TLS.ClientCA != ""
	case listenRegistry:
		return c.RegistryTLS.set()
	}
	return false
}

// loopback reports whether a host to listen on is reached from this machine only.
func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

func checkURLs(field string, urls []string) []error {
	var errs []error
	if len(urls) == 0 {
		errs = append(errs, problem(field, "is empty: give the URL of the control plane"))
	}
	for i, s := range urls {
		if err := laneclient.CheckControl(s); err != nil {
			errs = append(errs, problem(fmt.Sprintf("%s[%d]", field, i), "%w", err))
		}
	}
	return errs
}
