package deploy

import (
	"net"
	"os"
	"strconv"
	"strings"
)

// environ is the environment of the child: that of this process, Process.Env, and
// what makes it an instance. A later value wins.
func (p *Process) environ() []string {
	env := append(os.Environ(), p.Env...)
	set := func(key, value string) { env = append(env, key+"="+value) }
	set("LANEWAY_CONTROL", strings.Join(p.Control, ","))
	set("LANEWAY_SERVICE", p.Service)
	set("LANEWAY_LANE", p.Lane)
	set("LANEWAY_ROOM", p.Room)
	set("LANEWAY_INSTANCE", p.Instance)
	set("LANEWAY_TOKEN_FILE", p.TokenFile)
	if len(p.Listen) > 0 {
		set("PORT", strconv.Itoa(p.Listen[0].Port))
	}
	set("OTEL_RESOURCE_ATTRIBUTES", resource(lookup(env, "OTEL_RESOURCE_ATTRIBUTES"),
		"service.name", p.Service, "service.instance.id", p.Instance, "laneway.lane", p.Lane))
	if p.Proxy != "" {
		set("HTTP_PROXY", "http://"+p.Proxy)
		set("http_proxy", "http://"+p.Proxy)
		host, port, err := net.SplitHostPort(p.Proxy)
		if err == nil {
			java := "-Dhttp.proxyHost=" + host + " -Dhttp.proxyPort=" + port
			set("JAVA_TOOL_OPTIONS", strings.TrimSpace(lookup(env, "JAVA_TOOL_OPTIONS")+" "+java))
		}
	}
	return unique(env)
}

// lookup returns the last value of key.
func lookup(env []string, key string) string {
	value := ""
	for _, e := range env {
		if k, v, _ := strings.Cut(e, "="); k == key {
			value = v
		}
	}
	return value
}

// unique keeps the last value of each key, so that every program reads the same.
func unique(env []string) []string {
	last := make(map[string]int, len(env))
	for i, e := range env {
		k, _, _ := strings.Cut(e, "=")
		last[k] = i
	}
	out := env[:0:0]
	for i, e := range env {
		if k, _, _ := strings.Cut(e, "="); last[k] == i {
			out = append(out, e)
		}
	}
	return out
}

// resource adds attributes to a list as OTEL_RESOURCE_ATTRIBUTES has it
// ("k=v,k=v"). Attributes that are there by the same name are replaced, and ones
// without a value are left out. Values are percent-encoded where they need it:
// names of services, instances and lanes never do.
func resource(list string, pairs ...string) string {
	ours := map[string]bool{}
	for i := 0; i < len(pairs); i += 2 {
		ours[pairs[i]] = true
	}
	var out []string
	for part := range strings.SplitSeq(list, ",") {
		k, _, _ := strings.Cut(strings.TrimSpace(part), "=")
		if k != "" && !ours[k] {
			out = append(out, strings.TrimSpace(part))
		}
	}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			out = append(out, pairs[i]+"="+pairs[i+1])
		}
	}
	return strings.Join(out, ",")
}
