package network

import (
	"net/netip"
	"strings"

	"demesne/netns"
	"demesne/runner/network/proxyclient"
)

// certVariables name a certificate file for programs that ignore the system's: OpenSSL, curl, git, Python's requests,
// pip, Node, npm, cargo, Deno and the AWS tools. pip's and npm's win over files of configuration, which may name a file
// without the authority of secrets.
var certVariables = []string{
	"SSL_CERT_FILE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "REQUESTS_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS", "npm_config_cafile",
	"CARGO_HTTP_CAINFO", "DENO_CERT", "AWS_CA_BUNDLE",
}

// goProxy is the address of the Go module proxy inside a sandbox, the same as in jbeshir/demesne.
var goProxy = netip.MustParseAddrPort("127.0.0.1:8087")

// resolverByTCP makes glibc's resolver ask by TCP. Datagrams of a supervised sandbox have no address that a resolver could
// compare.
const resolverByTCP = "RES_OPTIONS=use-vc single-request-reopen timeout:2 attempts:3"

// environ returns the variables of [Egress.Env]. Programs that ignore them are served by name instead.
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
	}
	if javaStore != "" {
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
