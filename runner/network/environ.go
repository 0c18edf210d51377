package network

import (
	"net/netip"
	"strings"

	"demesne/netns"
	"demesne/runner/network/proxyclient"
)

// certVariables name a file of certificates to programs that would not look at the
// system's: OpenSSL, curl, git, Python's requests, Node, cargo, Deno, the AWS tools.
var certVariables = []string{
	"SSL_CERT_FILE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "CARGO_HTTP_CAINFO", "DENO_CERT", "AWS_CA_BUNDLE",
}

// goProxy is where a sandbox finds its own Go module proxy: jbeshir/demesne's address.
var goProxy = netip.MustParseAddrPort("127.0.0.1:8087")

// Env tells programs of the proxy, and has the placeholders of secrets. javaStore is certFile as Java wants it; where that is empty, none is named.
func (w *Egress) Env(certFile, javaStore string) []string {
	return environ(certFile, javaStore, w.golang != nil, w.outlet.Plan().Env)
}

// environ tells programs of the proxy. Those that do not ask find their way by names.
func environ(certFile, javaStore string, golang bool, placeholders []proxyclient.Var) []string {
	at := "http://" + netns.ProxyAddr().String()
	var env []string
	for _, kv := range []string{"HTTP_PROXY=" + at, "HTTPS_PROXY=" + at, "ALL_PROXY=" + at, "NO_PROXY=localhost,127.0.0.1,::1"} {
		env = append(env, kv, lowerName(kv))
	}
	if certFile != "" {
		for _, name := range certVariables {
			env = append(env, name+"="+certFile)
		}
		env = append(env, "JDK_JAVA_OPTIONS=-Djavax.net.ssl.trustStoreType=JKS -Djavax.net.ssl.trustStore="+javaStore)
	}
	if golang {
		env = append(env, "GOPROXY=http://"+goProxy.String()+",direct")
	}
	for _, p := range placeholders {
		env = append(env, p.Name+"="+p.Value)
	}
	return env
}

func lowerName(kv string) string {
	name, value, _ := strings.Cut(kv, "=")
	return strings.ToLower(name) + "=" + value
}
